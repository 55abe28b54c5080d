use super::*;
use object::{Object, ObjectSymbol};
use proptest::prelude::*;
use std::fs;

/// The libc of this process.
fn libc() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

const NAMES: &[&str] = &["malloc", "free", "cfree", "memalign", "printf", "_exit", "no such name"];

#[test]
fn libc_is_read_as_by_the_object_crate() {
    let path = libc();
    let (file, data) = (File::open(&path).unwrap(), fs::read(&path).unwrap());
    let elf = Elf::read(&file).unwrap();
    let oracle = object::File::parse(&*data).unwrap();
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(elf.build_id, hex(oracle.build_id().unwrap().unwrap_or_default()));
    assert_eq!(elf.soname, "libc.so.6");
    let mut ours: Vec<_> = elf
        .dynamic_functions(NAMES)
        .unwrap()
        .iter()
        .map(|symbol| (symbol.name, symbol.svma, symbol.size))
        .collect();
    let mut theirs: Vec<_> = oracle
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && NAMES.contains(&symbol.name().unwrap()))
        .map(|symbol| (symbol.name().unwrap(), symbol.address(), symbol.size()))
        .collect();
    ours.sort();
    theirs.sort();
    assert!(ours.len() >= 5, "{ours:?}");
    assert_eq!(ours, theirs);
    for symbol in elf.dynamic_functions(NAMES).unwrap() {
        let offset = elf.file_offset(symbol.svma).unwrap() as usize;
        assert_eq!(elf.code(&symbol).unwrap(), &data[offset..offset + symbol.size as usize]);
    }
}

#[test]
fn our_own_program_is_an_executable_with_symbols() {
    let file = File::open("/proc/self/exe").unwrap();
    let elf = Elf::read(&file).unwrap();
    assert!(elf.is_executable && elf.has_interpreter && elf.has_static_symbols());
    assert_eq!(elf.soname, "");
    assert_eq!(elf.static_functions(&["main", "_start"]).unwrap().len(), 2);
}

#[test]
fn old_versions_of_a_name_are_marked() {
    let file = File::open(libc()).unwrap();
    let versions = Elf::read(&file).unwrap().dynamic_functions(&["realpath", "time"]).unwrap();
    let real: Vec<_> = versions.iter().filter(|symbol| symbol.name == "realpath").collect();
    assert_eq!(real.len(), 2, "realpath@GLIBC_2.2.5 and realpath@@GLIBC_2.3: {real:?}");
    assert_eq!(real.iter().filter(|symbol| symbol.is_default).count(), 1);
    assert_ne!(real[0].svma, real[1].svma);
    // `time` is an STT_GNU_IFUNC. Its address is that of the code that chooses a `time`.
    assert!(versions.iter().all(|symbol| symbol.name == "realpath"), "{versions:?}");
}

#[test]
fn an_address_outside_is_an_error() {
    let file = File::open(libc()).unwrap();
    let elf = Elf::read(&file).unwrap();
    let error = elf.file_offset(1 << 60).unwrap_err();
    assert_eq!(error.to_string(), "address 0x1000000000000000 is in no segment of the file");
    let symbol = |size| Symbol {
        name: "x",
        is_default: true,
        is_local: false,
        is_hidden: false,
        svma: 0x30000,
        size,
    };
    assert_eq!(elf.code(&symbol(0)).unwrap().len() as u64, UNSIZED_CODE_BYTES);
    assert!(elf.code(&symbol(CODE_BYTES + 1)).is_err());
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("file");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Elf::read(&File::open(&path).unwrap()).unwrap_err().to_string()
    };
    assert_eq!(read(b""), "not an ELF file");
    assert_eq!(read(b"#!/bin/sh"), "not an ELF file");
    assert_eq!(read(b"\x7fELF\x01\x01"), "not a 64-bit x86 ELF file");
    assert_eq!(read(b"\x7fELF\x02\x01"), "malformed ELF file: header");
    let mut arm = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
    arm[18] = 183;
    assert_eq!(read(&arm), "not a 64-bit x86 ELF file");
    arm[18] = 62;
    assert_eq!(read(&arm), "malformed ELF file: program headers");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A hostile file is refused or read. It neither ends the process nor exhausts its memory.
    #[test]
    fn a_damaged_elf_file_is_refused_or_read(
        damage in prop::collection::vec((0..2048usize, any::<u8>()), 1..12),
        sections in prop::collection::vec((0..4096usize, any::<u8>()), 0..12),
    ) {
        let mut bytes = fs::read("/bin/true").unwrap();
        let end = bytes.len();
        for (at, byte) in damage {
            bytes[at] = byte;
        }
        // The section headers are at the end.
        for (at, byte) in sections {
            bytes[end - 1 - at] = byte;
        }
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        if let Ok(elf) = Elf::read(&file) {
            for symbols in [elf.dynamic_functions(NAMES), elf.static_functions(NAMES)] {
                for symbol in symbols.unwrap_or_default() {
                    let _ = elf.code(&symbol);
                }
            }
        }
    }
}
