use super::*;
use proptest::prelude::*;
use sampler_common::wire::{Operand, OperandKind};
use std::io::Write as _;
use std::process::Command;
use std::sync::OnceLock;

#[test]
fn nops_of_all_lengths_are_recognized() {
    for code in [&[0x90][..], &[0x66, 0x90], &[0x0f, 0x1f, 0x44, 0, 0]] {
        assert!(is_nop(code));
    }
    for code in [&[0xcc][..], &[0x55], &[0x0f, 0x0b], &[]] {
        assert!(!is_nop(code));
    }
}

/// A probe as assembly, located at label 990.
fn probe(label: &str, semaphore: &str, name: &str, arguments: &str) -> String {
    probe_of("otel_memory", label, semaphore, name, arguments)
}

fn probe_of(provider: &str, label: &str, semaphore: &str, name: &str, arguments: &str) -> String {
    format!(
        ".pushsection .note.stapsdt,\"\",\"note\"; .balign 4; .4byte 8, 902f-901f, 3; .asciz \"stapsdt\"
        901: .8byte {label}, stapsdt_base, {semaphore}; .asciz \"{provider}\"; .asciz \"{name}\"; .asciz \"{arguments}\"
        902: .balign 4; .popsection\n"
    )
}

/// A library with these probes. `here` and `there` are nops, `elsewhere` is not.
fn library(probes: &[String]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("library.s"), directory.path().join("library"));
    let source = format!(
        ".globl malloc, free; .type malloc, @function; .type free, @function
        malloc: push %rbp
        here: nop
        pop %rbp
        ret
        free: push %rbp
        there: .byte 0x66, 0x90
        elsewhere: ret
        last: nop
        called: .byte 0x0f, 0x1f, 0x44, 0, 0
        .size malloc, free-malloc; .size free, .-free
        .section .stapsdt.base,\"a\",@progbits
        stapsdt_base: .space 1
        .section .probes,\"aw\",@progbits
        .balign 4; .space 2
        semaphore: .space 2
        {}.section .note.GNU-stack\n",
        probes.concat()
    );
    std::fs::write(&input, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-nostdlib", "-o"]).arg(&output).arg(&input);
    assert!(compiler.status().expect("cc (install gcc)").success());
    std::fs::read(output).unwrap()
}

fn read(bytes: &[u8]) -> Usdt {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Usdt::read(&file).unwrap()
}

fn usual() -> Vec<String> {
    vec![
        probe("here", "semaphore", "alloc", "8@%rdi -4@-8(%rbp) 8@$64"),
        probe("there", "0", "free", "8@%rax"),
    ]
}

#[test]
fn probes_are_read_with_and_without_a_semaphore() {
    let bytes = library(&usual());
    let usdt = read(&bytes);
    assert_eq!((usdt.refused, usdt.defines_malloc, usdt.probes.len()), (None, true, 2));
    let [alloc, free] = usdt.probes[..] else { panic!("two probes") };
    assert_eq!((alloc.role, free.role), (Role::OtelAlloc, Role::OtelFree));
    assert_eq!((bytes[alloc.offset as usize], bytes[free.offset as usize]), (0x90, 0x66));
    let semaphore = alloc.semaphore.unwrap() as usize;
    assert_eq!((free.semaphore, &bytes[semaphore..semaphore + 2]), (None, &[0, 0][..]));
    let memory = alloc.site.arguments[1];
    assert_eq!((memory.kind, memory.value), (OperandKind::Memory as u8, -8));
    assert_eq!(alloc.site.arguments[2].value, 64);
    assert_eq!(free.site.arguments[1..], [Operand::default(); 2]);
}

#[test]
fn files_with_one_invalid_probe_are_refused() {
    let alloc = |label: &str, arguments: &str| probe(label, "0", "alloc", arguments);
    let free = probe("there", "0", "free", "8@%rax");
    let three = "8@%rdi 8@%rsi 8@%rdx";
    for (probes, why) in [
        (vec![alloc("here", three)], "otel_memory:free is missing"),
        (vec![free.clone()], "otel_memory:alloc is missing"),
        (vec![alloc("elsewhere", three), free.clone()], "no nop"),
        (vec![alloc("called", three), free.clone()], "five-byte nop"),
        (vec![alloc("0x7fffffff", three), free.clone()], "in no segment"),
        (vec![alloc("here", "8@%rdi 8@%rsi"), free.clone()], "fewer than 3"),
        (vec![alloc("here", "8@%rdi 8@%rsi 8@global(%rip)"), free.clone()], "not understood"),
        (
            vec![alloc("here", three), alloc("here", "8@%rsi 8@%rsi 8@%rdx"), free.clone()],
            "contradict",
        ),
        (vec![probe("here", "semaphore+1", "alloc", three), free.clone()], "odd address"),
        (vec![free.clone(); 257], "more than 256"),
    ] {
        let usdt = read(&library(&probes));
        let refused = usdt.refused.unwrap_or_default();
        assert!(usdt.probes.is_empty() && refused.contains(why), "{why}: {refused:?}");
    }
    // Our library's further probe is attached together with the contract's probes, but is not one
    // of the contract's.
    let own = probe_of("sampler_preload", "last", "0", "ended", "8@%rdi");
    let usdt = read(&library(&[alloc("here", three), free, own]));
    let roles: Vec<Role> = usdt.probes.iter().map(|probe| probe.role).collect();
    assert_eq!(roles, [Role::OtelAlloc, Role::OtelFree, Role::LibraryEnded], "{:?}", usdt.refused);
    assert_eq!(usdt.functions().len(), 2);
    // Other probes are ignored.
    let others = [probe("here", "0", "realloc", "nonsense"), usual().concat()];
    assert_eq!(read(&library(&others)).probes.len(), 2);
    assert_eq!(read(&library(&[])), Usdt::default());
    assert_eq!(read(b"no ELF"), Usdt::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_library_gives_bounded_probes(changes in proptest::collection::vec((0usize..1 << 14, any::<u8>()), 1..20), end in 0usize..1 << 15) {
        static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
        let mut bytes = LIBRARY.get_or_init(|| library(&usual())).clone();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(end.max(64));
        let usdt = read(&bytes);
        prop_assert!(usdt.probes.len() <= MAX_PROBES);
        for probe in usdt.probes {
            prop_assert!(probe.offset < bytes.len() as u64);
        }
    }
}
