use super::*;
use proptest::prelude::*;

/// Parses code in hex with spaces, as disassemblers print it.
fn code(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// First bytes of real functions, and the displacements at which real probes were measured to be
/// emulated: library, function, role, displacement, code.
const MEASURED: &[(&str, &str, Role, u32, &str)] = &[
    ("glibc", "malloc", Role::Malloc, 0, "41 54 55 53 48 89 fb 48 83 ec 10"),
    ("glibc", "calloc", Role::Calloc, 0, "41 55 48 89 f8 41 54 55 53"),
    ("glibc", "realloc", Role::Realloc, 0, "41 57 41 56 41 55 41 54 55"),
    ("glibc", "free", Role::Free, 9, "48 85 ff 0f 84 bf 00 00 00 55 48 8d 77 f0 53"),
    (
        "glibc",
        "posix_memalign",
        Role::PosixMemalign,
        7,
        "80 3d 01 02 14 00 00 41 54 49 89 d4 55 48 89 fd",
    ),
    (
        "glibc",
        "memalign",
        Role::AlignedAlloc,
        7,
        "80 3d 71 0e 14 00 00 74 07 e9 32 f6 ff ff 66 90 48 83 ec 18",
    ),
    ("glibc", "valloc", Role::Malloc, 7, "80 3d 31 0e 14 00 00 53 48 89 fb 74 1b"),
    (
        "glibc",
        "mmap",
        Role::AlignedAlloc,
        10,
        "41 89 ca 41 f7 c1 ff 0f 00 00 75 14 b8 09 00 00 00 0f 05",
    ),
    (
        "jemalloc",
        "malloc",
        Role::Malloc,
        7,
        "48 81 ff 00 10 00 00 0f 87 93 00 00 00 48 8d 15 5c 7f 2c 00",
    ),
    (
        "jemalloc",
        "free",
        Role::Free,
        48,
        "48 89 f8 48 8b 15 0e 53 0a 00 48 89 f9 48 c1 e8 1a 48 81 e1 00 00 00 c0 25 f0 00 00 00 \
         64 48 03 04 25 00 00 00 00 48 01 d0 48 3b 88 b0 01 00 00 0f 85 8a 00 00 00",
    ),
    ("jemalloc", "calloc", Role::Calloc, 0, "41 57 41 56 41 55 41 54 49 89 f4 55 53"),
    (
        "jemalloc",
        "operator delete(void*, size_t)",
        Role::Free,
        3,
        "48 85 ff 74 13 48 83 ec 08 e8 12 33 f8 ff 48 83 c4 08 c3",
    ),
    (
        "tcmalloc",
        "malloc",
        Role::Malloc,
        10,
        "48 8b 05 59 ab 00 00 48 85 c0 75 75 48 8b 05 05 a1 00 00",
    ),
    (
        "tcmalloc",
        "free",
        Role::Free,
        10,
        "48 8b 05 59 b1 1b 00 48 85 c0 0f 85 90 00 00 00 48 89 fa",
    ),
    (
        "tcmalloc",
        "posix_memalign",
        Role::PosixMemalign,
        11,
        "48 8d 46 ff 48 83 c8 07 48 85 f0 75 2b 53 b8 16 00 00 00",
    ),
    (
        "tcmalloc",
        "memalign",
        Role::AlignedAlloc,
        10,
        "49 89 f8 48 81 ff 00 20 00 00 0f 87 e8 00 00 00 4c 89 c0",
    ),
    (
        "libstdc++",
        "operator new",
        Role::Malloc,
        12,
        "f3 0f 1e fa 48 85 ff b8 01 00 00 00 53 48 0f 45 c7",
    ),
    ("libstdc++", "operator new[]", Role::Malloc, 4, "f3 0f 1e fa e9 f7 02 ff ff"),
    ("libstdc++", "operator delete", Role::Free, 4, "f3 0f 1e fa e9 87 2f ff ff"),
];

#[test]
fn the_measured_spots_are_found() {
    for (library, function, role, displacement, hex) in MEASURED {
        let placement = place(&code(hex), 0x1000, *role, Shape::DEFAULT);
        assert!(placement.emulated, "{library} {function}: {placement:?}");
        assert_eq!(placement.displacement, *displacement, "{library} {function}: {placement:?}");
    }
}

#[test]
fn the_chosen_placement_has_a_reason() {
    let free = place(&code("48 85 ff 0f 84 bf 00 00 00"), 0x98ef0, Role::Free, Shape::DEFAULT);
    assert_eq!(free.instruction, "je 0x98fb8");
    assert_eq!(free.reason, "first emulated instruction");
    // reallocarray of glibc 2.36.
    let none = place(&code("48 89 f0 48 f7 e2 48 89 c6 70 05"), 0, Role::Realloc, Shape::DEFAULT);
    assert_eq!((none.displacement, none.emulated), (0, false));
    assert_eq!(none.instruction, "mov rax, rsi");
    assert_eq!(
        none.reason,
        "`mov rsi, rax` overwrites an argument or rsp before anything emulated"
    );
}

/// A free of NULL ends no block.
#[test]
fn a_free_of_null_is_not_probed() {
    let spot = |hex: &str, role| {
        let placement = place(&code(hex), 0x1000, role, Shape::DEFAULT);
        assert!(placement.emulated, "{placement:?}");
        placement.displacement
    };
    // test rdi, rdi; je; push rbp, and with lea rsi, [rdi-16] in between.
    assert_eq!(spot("48 85 ff 74 10 55", Role::Free), 5);
    assert_eq!(spot("48 85 ff 0f 84 bf 00 00 00 48 8d 77 f0 53", Role::Free), 13);
    // realloc(NULL, n) allocates.
    assert_eq!(spot("48 85 ff 74 10 55", Role::Realloc), 3);
    // Another register, another condition, another instruction in between.
    assert_eq!(spot("48 85 f6 74 10 55", Role::Free), 3);
    assert_eq!(spot("48 85 ff 75 10 55", Role::Free), 3);
    assert_eq!(spot("48 85 ff 48 89 f8 74 10 55", Role::Free), 6);
    // No emulated instruction comes before rsp is written, or a branch leads back to the emulated
    // instruction.
    assert_eq!(spot("48 85 ff 74 13 48 83 ec 08 55", Role::Free), 3);
    assert_eq!(spot("48 85 ff 74 10 55 eb fd", Role::Free), 3);
}

#[test]
fn an_argument_counts_only_for_its_role() {
    // mul rsi: overwrites rdx.
    let code = code("48 89 f8 48 f7 e6 55");
    assert_eq!(place(&code, 0, Role::Calloc, Shape::DEFAULT).displacement, 6);
    assert!(!place(&code, 0, Role::PosixMemalign, Shape::DEFAULT).emulated);
}

#[test]
fn branches_back_between_entry_and_spot_keep_the_entry() {
    // test rdi, rdi; push rbp; then a branch to +0, +1, +3, +4.
    for (back, emulated) in [(0xfa, true), (0xfb, false), (0xfd, false), (0xfe, true)] {
        for branch in [0xeb, 0x75, 0xe2] {
            let placement =
                place(&[0x48, 0x85, 0xff, 0x55, branch, back], 0x4000, Role::Free, Shape::DEFAULT);
            assert_eq!(placement.emulated, emulated, "{branch:#x} {back:#x} {placement:?}");
            assert_eq!(placement.displacement, if emulated { 3 } else { 0 });
        }
    }
    // A branch may lead back to an emulated entry, since there is no better place.
    assert!(place(&code("55 eb fd"), 0, Role::Free, Shape::DEFAULT).emulated);
}

#[test]
fn an_entry_that_cannot_be_probed_is_passed_over() {
    // cs nop; mov rax, rdi; ret
    let placement = place(&code("2e 0f 1f 40 00 48 89 f8 c3"), 0, Role::Malloc, Shape::DEFAULT);
    assert_eq!((placement.displacement, placement.emulated), (5, false));
    assert_eq!(placement.instruction, "mov rax, rdi");
}

#[test]
fn undecodable_code_is_probed_at_its_entry() {
    for bytes in ["", "06", "06 55", "48", "48 85", "ff ff ff"] {
        let placement = place(&code(bytes), u64::MAX, Role::Malloc, Shape::DEFAULT);
        assert_eq!((placement.displacement, placement.emulated), (0, false));
        assert_eq!(placement.instruction, bytes);
        assert_eq!(placement.reason, "the code does not decode");
    }
    let long = place(&[0x31; 4096], 0, Role::Malloc, Shape::DEFAULT);
    assert_eq!((long.displacement, long.emulated), (0, false));
}

const RDI: u8 = 1;
const RSI: u8 = 2;
const RDX: u8 = 4;
const RSP: u8 = 8;

/// The effect of an instruction by the architecture manuals: the oracle for the property below.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// Continues with the next instruction and writes these registers.
    Plain(u8),
    Emulated,
    /// Continues elsewhere, or does not come back at once.
    Leaving,
}
use Is::{Emulated, Leaving, Plain};

const KNOWN: &[(&str, Is)] = &[
    ("f3 0f 1e fa", Plain(0)),
    ("48 85 ff", Plain(0)),
    ("48 89 f8", Plain(0)),
    ("48 8d 47 07", Plain(0)),
    ("48 81 ff 00 10 00 00", Plain(0)),
    ("31 c0", Plain(0)),
    ("4c 8b 05 00 00 00 00", Plain(0)),
    ("80 3d 00 00 00 00 00", Plain(0)),
    ("48 89 3d 00 00 00 00", Plain(0)),
    ("40 0f b6 c6", Plain(0)),
    ("48 0f af c6", Plain(0)),
    ("66 48 0f 6e c7", Plain(0)),
    ("48 89 fc", Plain(RSP)),
    ("48 89 c7", Plain(RDI)),
    ("89 c7", Plain(RDI)),
    ("40 88 c7", Plain(RDI)),
    ("66 89 c7", Plain(RDI)),
    ("48 83 c7 07", Plain(RDI)),
    ("48 97", Plain(RDI)),
    ("48 0f 44 f8", Plain(RDI)),
    ("48 0f cf", Plain(RDI)),
    ("aa", Plain(RDI)),
    ("ac", Plain(RSI)),
    ("f3 a4", Plain(RDI | RSI)),
    ("89 c6", Plain(RSI)),
    ("48 8d 77 f0", Plain(RSI)),
    ("48 f7 e6", Plain(RDX)),
    ("48 99", Plain(RDX)),
    ("99", Plain(RDX)),
    ("0f 31", Plain(RDX)),
    ("0f a2", Plain(RDX)),
    ("b6 01", Plain(RDX)),
    ("b2 01", Plain(RDX)),
    ("5f", Plain(RDI | RSP)),
    ("48 83 ec 08", Plain(RSP)),
    ("48 83 e4 f0", Plain(RSP)),
    ("6a 01", Plain(RSP)),
    ("ff 37", Plain(RSP)),
    ("9c", Plain(RSP)),
    ("c9", Plain(RSP)),
    ("53", Emulated),
    ("41 54", Emulated),
    ("57", Emulated),
    ("90", Emulated),
    ("e9 00 00 01 00", Emulated),
    ("0f 84 00 00 01 00", Emulated),
    ("e8 00 00 01 00", Leaving),
    ("c3", Leaving),
    ("ff e0", Leaving),
    ("ff 15 00 00 00 00", Leaving),
    ("0f 05", Leaving),
    ("cc", Leaving),
    ("0f 0b", Leaving),
];

/// The displacement that the manuals allow, if any.
fn expected(sequence: &[(&str, Is)], role: Role) -> Option<u32> {
    let kept = match role {
        Role::Malloc | Role::Free | Role::New => RDI | RSP,
        Role::Calloc | Role::Realloc | Role::AlignedAlloc => RDI | RSI | RSP,
        Role::PosixMemalign => RDI | RSI | RDX | RSP,
        Role::OtelAlloc | Role::OtelFree => RSP,
        other => unreachable!("{other:?} is not among the roles tried"),
    };
    let (mut at, mut found, mut before) = (0, None, "");
    for (bytes, is) in sequence {
        let is_for_null = role == Role::Free && before == "48 85 ff" && bytes.starts_with("0f 84");
        match is {
            Emulated if found.is_none() && is_for_null => found = Some(at),
            Emulated => return Some(at),
            Plain(written) if written & kept == 0 => {}
            Plain(_) | Leaving => return found,
        }
        at += code(bytes).len() as u32;
        before = bytes;
    }
    found
}

proptest! {
    /// The displacement is the one by the manuals. So arguments, rsp and the number of hits are
    /// those of the entry.
    #[test]
    fn arguments_are_never_overwritten_before_the_spot(
        sequence in prop::collection::vec(prop::sample::select(KNOWN), 1..12),
        role in (1u8..=6).prop_map(|number| Role::from_number(number).unwrap()),
        address: u64,
    ) {
        let bytes: Vec<u8> = sequence.iter().flat_map(|(hex, _)| code(hex)).collect();
        let placement = place(&bytes, address, role, Shape::DEFAULT);
        let expected = expected(&sequence, role);
        prop_assert_eq!(placement.emulated, expected.is_some(), "{:?} {:?}", sequence, placement);
        prop_assert_eq!(placement.displacement, expected.unwrap_or(0));
    }

    /// A branch back is seen from anywhere in the function.
    #[test]
    fn a_branch_back_is_always_found(
        plain in 1..5usize,
        rest in prop::collection::vec(prop::sample::select(KNOWN), 0..8),
        to in 0..40i32,
    ) {
        let mut bytes = [0x48, 0x85, 0xff].repeat(plain);
        let spot = bytes.len() as i32;
        bytes.push(0x53);
        bytes.extend(rest.iter().flat_map(|(hex, _)| code(hex)));
        bytes.push(0xe9);
        let behind = bytes.len() as i32 + 4;
        bytes.extend((to - behind).to_le_bytes());
        let placement = place(&bytes, 0x7f00_0000, Role::Free, Shape::DEFAULT);
        prop_assert_eq!(placement.emulated, !(1..=spot).contains(&to), "{:?}", placement);
    }

    /// Nothing panics, and an instruction that is called emulated is emulated.
    #[test]
    fn any_bytes_are_placed(bytes in prop::collection::vec(any::<u8>(), 0..200), address: u64) {
        let placement = place(&bytes, address, Role::PosixMemalign, Shape::DEFAULT);
        let at = placement.displacement as usize;
        if placement.emulated {
            let length = Decoder::new(64, &bytes[at..], DecoderOptions::NONE).decode().len();
            prop_assert!(is_emulated(&bytes[at..at + length]));
        }
    }
}

#[test]
fn a_five_byte_nop_is_passed_over() {
    // nop; push rbx, and a nop before a function that has no emulated instruction near its entry.
    let placement = place(&code("0f 1f 44 00 00 53"), 0x1000, Role::Malloc, Shape::DEFAULT);
    assert_eq!((placement.displacement, placement.emulated), (5, true));
    let plain = code("0f 1f 44 00 00 48 85 ff c3");
    let placement = place(&plain, 0x1000, Role::Malloc, Shape::DEFAULT);
    assert_eq!((placement.displacement, placement.emulated), (5, false));
    assert!(!would_harm(&plain, &placement));
    // No place is left if a branch leads back to the code behind the nop.
    let reentered = code("0f 1f 44 00 00 48 85 ff eb fb");
    let placement = place(&reentered, 0x1000, Role::Malloc, Shape::DEFAULT);
    assert!(placement.displacement == 0 && would_harm(&reentered, &placement));
}
