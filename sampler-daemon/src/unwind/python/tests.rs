//! A code object of CPython 3.11, written by hand, and its reading; offsets that runtimes state.

use super::code::{Code, Position, fingerprint};
use super::memory::Memory;
use super::version::{Offsets, Unknown, offsets};

const CODE: u64 = 0x1000;
const LINES: u64 = 0x2000;
const NAME: u64 = 0x3000;
const FILE: u64 = 0x4000;
const START: u64 = CODE + 184;

/// Memory from address 0 on.
struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let at = usize::try_from(address).ok()?;
        into.copy_from_slice(self.0.get(at..)?.get(..into.len())?);
        Some(())
    }
}

impl Bytes {
    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.0[address as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn put_word(&mut self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }

    /// Writes a string with one byte for each character, or with two.
    fn put_string(&mut self, address: u64, text: &str) {
        let is_ascii = text.is_ascii();
        self.put_word(address + 16, text.chars().count() as u64);
        let (width, header) = if is_ascii { (1, 48) } else { (2, 72) };
        self.put_word(address + 32, width << 2 | 1 << 5 | u64::from(is_ascii) << 6);
        for (at, unit) in (0..).zip(text.encode_utf16()) {
            self.put(address + header + at * width, &unit.to_le_bytes()[..width as usize]);
        }
    }
}

/// `def größe` in line 10 of a file: four units before its body, then four units of line 11 and one
/// unit without a line.
fn memory() -> Bytes {
    let mut memory = Bytes(vec![0; 0x5000]);
    memory.put_word(CODE + 16, 9);
    memory.put(CODE + 72, &10u32.to_le_bytes());
    memory.put_word(CODE + 112, FILE);
    memory.put_word(CODE + 128, NAME);
    memory.put_word(CODE + 136, LINES);
    memory.put(CODE + 168, &4u32.to_le_bytes());
    let lines = [0x83, 0x00, 0xdb, 0x04, 0x08, 0xf8];
    memory.put_word(LINES + 16, lines.len() as u64);
    memory.put(LINES + 32, &lines);
    memory.put_string(NAME, "Box.größe");
    memory.put_string(FILE, "/srv/box.py");
    memory
}

fn known() -> Offsets {
    offsets((3, 11), &Bytes(Vec::new()), 0).unwrap()
}

fn read(memory: &Bytes) -> Option<Code> {
    Code::read(memory, &known(), CODE, (fingerprint(memory, &known(), CODE, true)?, true))
}

#[test]
fn function_file_and_line_are_read() {
    let code = read(&memory()).unwrap();
    assert_eq!((&*code.function, &*code.file), ("Box.größe", "/srv/box.py"));
    let position = |unit: u64| code.position(START + 2 * unit, 0);
    assert_eq!(position(0), Some(Position::NotBegun));
    assert_eq!(code.position(START - 2, 0), Some(Position::NotBegun));
    // A generator's frame exists only after it has begun.
    assert_eq!(code.position(START, 1), Some(Position::Line(10)));
    assert_eq!([4, 7].map(position), [Some(Position::Line(11)); 2]);
    assert_eq!(position(8), Some(Position::Line(0)));
    assert_eq!([position(9), code.position(CODE, 0), code.position(u64::MAX, 1)], [None; 3]);
}

#[test]
fn a_replaced_code_object_is_refused() {
    let before = memory();
    let expected = (fingerprint(&before, &known(), CODE, true).unwrap(), true);
    for (address, byte) in [(CODE + 72, 11), (CODE + 129, 0x31), (LINES + 16, 5), (LINES + 37, 0)] {
        let mut memory = memory();
        memory.put(address, &[byte]);
        assert!(Code::read(&memory, &known(), CODE, expected).is_none(), "{address:#x}");
    }
    // Fields that change while a code object lives do not count.
    let mut memory = memory();
    memory.put_word(CODE + 152, 0x7777);
    memory.put_word(LINES + 24, 0x7777);
    memory.put(LINES + 40, &[0x77; 60]);
    assert!(Code::read(&memory, &known(), CODE, expected).is_some());
}

#[test]
fn impossible_sizes_and_kinds_are_refused() {
    for (address, word) in [
        (CODE + 128, u64::MAX - 8),
        (LINES + 16, 1 << 40),
        (NAME + 16, u64::MAX),
        (NAME + 32, 7 << 2 | 1 << 5),
        (NAME + 32, 1 << 2),
    ] {
        let mut memory = memory();
        memory.put_word(address, word);
        assert!(read(&memory).is_none(), "{address:#x} {word:#x}");
    }
}

/// A runtime of a version (`PY_VERSION_HEX`) at address 0. Each of its stated offsets is the place
/// of the offset itself.
fn runtime(version: u64, free_threaded: u64) -> Bytes {
    let mut memory = Bytes(vec![0; 0x400]);
    (0..0x400).step_by(8).for_each(|at| memory.put_word(at, at));
    memory.put(0, b"xdebugpy");
    memory.put_word(8, version);
    memory.put_word(16, free_threaded);
    memory
}

#[test]
fn stated_offsets_are_found_by_the_version() {
    let of = |minor: u8, version| {
        let offsets = offsets((3, minor), &runtime(version, 0), 0).unwrap();
        [offsets.interpreter.of_thread, offsets.owner, offsets.code.name].map(|at| at / 8)
    };
    assert_eq!(of(13, 0x030d_05f0), [22, 33, 37]);
    assert_eq!(of(14, 0x030e_00c1), [25, 36, 42]);
}

#[test]
fn other_versions_and_builds_are_refused() {
    let refused =
        |version, free_threaded| offsets((3, 14), &runtime(version, free_threaded), 0).err();
    // Another version than the file's name says, a beta version, and no runtime.
    assert_eq!(refused(0x030d_00f0, 0), Some(Unknown::Version));
    assert_eq!(refused(0x030e_00b2, 0), Some(Unknown::Version));
    assert_eq!(offsets((3, 14), &Bytes(vec![0; 0x400]), 0).err(), Some(Unknown::Version));
    assert_eq!(offsets((3, 15), &runtime(0x030f_00f0, 0), 0).err(), Some(Unknown::Version));
    assert_eq!(refused(0x030e_00f0, 1), Some(Unknown::FreeThreaded));
}
