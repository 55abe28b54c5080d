use iced_x86::{Decoder, DecoderOptions};
use proptest::prelude::*;

use super::*;

const ENTRY: u64 = 0x7f00_0000_0000;

/// free of glibc 2.36.
const FREE: &[u8] = &[
    0x48, 0x85, 0xff, 0x0f, 0x84, 0xaf, 0x00, 0x00, 0x00, 0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48,
    0x8b, 0x1d, 0x4e, 0xf4, 0x14, 0x00, 0x64, 0x8b, 0x2b, 0x90, 0x90, 0x90, 0x90, 0x90,
];

/// Bytes behind a function. As jumps they would not lead near it.
const PADDING: [u8; 16] = [0x90; 16];

fn function(bytes: &[u8], arguments: u8, is_free: bool) -> Function<'_> {
    Function { entry: ENTRY, bytes, size: Some(bytes.len() as u64), arguments, is_free }
}

fn offsets(bytes: &[u8], arguments: u8, is_free: bool) -> Vec<u64> {
    let bytes = [bytes, &PADDING].concat();
    let function = function(&bytes, arguments, is_free);
    places(&function).iter().map(|place| place.patch - ENTRY).collect()
}

/// Whether a place lies at the first byte behind `bytes`.
fn passes(bytes: &[u8], arguments: u8, is_free: bool) -> bool {
    // mov byte [rdi], 7: a place needs five bytes, and no place lies behind this instruction.
    let whole = [bytes, &[0xc6, 0x07, 0x07, 0x12, 0x34, 0x56]].concat();
    offsets(&whole, arguments, is_free).contains(&(bytes.len() as u64))
}

#[test]
fn free_has_places_behind_its_prefix_and_null_check() {
    assert_eq!(offsets(FREE, 1, true)[..4], [0, 1, 3, 9]);
}

#[test]
fn only_free_is_hooked_behind_a_null_check() {
    let checked = [0x48, 0x85, 0xff, 0x74, 0x20];
    assert!(passes(&checked, 1, true));
    assert!(!passes(&checked, 2, false));
    // The check's flags are lost: xor eax, eax.
    assert!(!passes(&[0x48, 0x85, 0xff, 0x31, 0xc0, 0x74, 0x20], 1, true));
    // The check's flags are kept: mov rax, rdi.
    assert!(passes(&[0x48, 0x85, 0xff, 0x48, 0x89, 0xf8, 0x74, 0x20], 1, true));
    // A copy of the pointer is checked: mov rax, rdi; test rax, rax.
    assert!(passes(&[0x48, 0x89, 0xf8, 0x48, 0x85, 0xc0, 0x74, 0x20], 1, true));
    // Only half of the pointer is checked: test edi, edi.
    assert!(!passes(&[0x85, 0xff, 0x74, 0x20], 1, true));
    // Another value is checked: push rdi; mov rdi, rsi; test rdi, rdi.
    assert!(!passes(&[0x57, 0x48, 0x89, 0xf7, 0x48, 0x85, 0xff, 0x74, 0x20], 1, true));
    // The other branch: jne.
    assert!(!passes(&[0x48, 0x85, 0xff, 0x75, 0x20], 1, true));
}

#[test]
fn branches_on_impossible_sizes_are_passed() {
    // test rdi, rdi; js
    assert!(passes(&[0x48, 0x85, 0xff, 0x78, 0x20], 1, false));
    // test edi, edi; js: 2 GiB are possible.
    assert!(!passes(&[0x85, 0xff, 0x78, 0x20], 1, false));
    // mov rax, rdi; mul rsi; jo
    let product = [0x48, 0x89, 0xf8, 0x48, 0xf7, 0xe6, 0x70, 0x20];
    assert!(passes(&product, 2, false));
    // The third argument would be lost in rdx. With one argument, rsi is no argument.
    assert!(!passes(&product, 3, false));
    assert!(!passes(&product, 1, false));
    // mov rax, rdi; mul rdi; jo
    assert!(!passes(&[0x48, 0x89, 0xf8, 0x48, 0xf7, 0xe7, 0x70, 0x20], 2, false));
}

#[test]
fn branches_on_misaligned_pointers_are_passed() {
    // test dil, 15; jne
    assert!(passes(&[0x40, 0xf6, 0xc7, 0x0f, 0x75, 0x20], 1, true));
    // test dil, 31; jne
    assert!(!passes(&[0x40, 0xf6, 0xc7, 0x1f, 0x75, 0x20], 1, true));
    assert!(!passes(&[0x40, 0xf6, 0xc7, 0x0f, 0x75, 0x20], 1, false));
}

#[test]
fn only_reversible_instructions_are_passed() {
    // push rbx; mov rbx, rdi
    assert!(passes(&[0x53, 0x48, 0x89, 0xfb], 1, false));
    // mov rbx, rdi: a register that has to be preserved
    assert!(!passes(&[0x48, 0x89, 0xfb], 1, false));
    // mov rdi, rsi: an argument is lost
    assert!(!passes(&[0x48, 0x89, 0xf7], 1, false));
    // mov rsi, rdi: an argument of calloc, but none of malloc
    assert!(passes(&[0x48, 0x89, 0xfe], 1, false));
    assert!(!passes(&[0x48, 0x89, 0xfe], 2, false));
    // push rdi; mov rdi, rsi
    assert!(passes(&[0x57, 0x48, 0x89, 0xf7], 2, false));
    // sub rsp, 24, and add rsp, -24
    assert!(passes(&[0x48, 0x83, 0xec, 0x18], 1, false));
    assert!(passes(&[0x48, 0x83, 0xc4, 0xe8], 1, false));
    // add rsp, 24; and rsp, -16
    assert!(!passes(&[0x48, 0x83, 0xc4, 0x18], 1, false));
    assert!(!passes(&[0x48, 0x83, 0xe4, 0xf0], 1, false));
    // mov [rdi], rsi; lock inc dword [rax]; call; syscall; rep movsb; pop rax
    assert!(!passes(&[0x48, 0x89, 0x37], 2, false));
    assert!(!passes(&[0xf0, 0xff, 0x00], 1, false));
    assert!(!passes(&[0xe8, 0x00, 0x10, 0x00, 0x00], 1, false));
    assert!(!passes(&[0x0f, 0x05], 1, false));
    assert!(!passes(&[0xf3, 0xa4], 0, false));
    assert!(!passes(&[0x58], 1, false));
    // push rsp
    assert!(!passes(&[0x54], 1, false));
}

#[test]
fn calls_and_existing_jumps_are_not_hooked() {
    assert!(offsets(&[0xe8, 0x00, 0x10, 0x00, 0x00], 1, false).is_empty());
    assert!(offsets(&[0xe9, 0x00, 0x10, 0x00, 0x00], 1, false).is_empty());
    // jmp rel8
    assert_eq!(offsets(&[0xeb, 0x20], 1, false), [0]);
}

/// The second function's loop begins behind its first instruction; the third function's loop begins
/// at the entry.
#[test]
fn no_place_lies_at_or_behind_a_jump_target() {
    // push rbx; mov rax, rcx; mov rcx, rax; jmp …
    let with_jump = |back: u8| [0x53, 0x48, 0x89, 0xc8, 0x48, 0x89, 0xc1, 0x75, back];
    assert_eq!(offsets(&with_jump(0x10), 1, false), [0, 1, 2, 4, 5, 7]);
    assert_eq!(offsets(&with_jump(0xf8), 1, false), [0]);
    assert!(offsets(&with_jump(0xf7), 1, false).is_empty());
}

#[test]
fn jumps_from_other_code_exclude_places() {
    let bytes = [&[0x53, 0x48, 0x89, 0xc8, 0x48, 0x89, 0xc1, 0xc3], &PADDING[..]].concat();
    let function = function(&bytes, 1, false);
    let with = |target: u64, opcode: [u8; 2]| {
        let address = ENTRY + 0x12_3456;
        let distance = target.wrapping_sub(address + 6) as i32;
        let code = [&opcode[..], &distance.to_le_bytes()].concat();
        let places = places_with(&function, &[Code { address, bytes: &code }]);
        places.iter().map(|place| place.patch - ENTRY).collect::<Vec<u64>>()
    };
    assert_eq!(with(ENTRY + 1, [0x90, 0xe9]), [0]);
    assert_eq!(with(ENTRY + 4, [0x0f, 0x8f]), [0, 1, 2]);
    // A call by another function, and bytes that are no jump.
    assert_eq!(
        with(ENTRY, [0x90, 0xe9]),
        places(&function).iter().map(|of| of.patch - ENTRY).collect::<Vec<_>>()
    );
    assert_eq!(with(ENTRY + 1, [0x0f, 0x7f]).len(), places(&function).len());
}

#[test]
fn a_partly_known_function_has_places_at_its_entry_only() {
    let whole = function(FREE, 1, true);
    for size in [None, Some(FREE.len() as u64 + 1)] {
        let found = places(&Function { size, ..whole });
        assert_eq!(found.iter().map(|of| of.patch - ENTRY).collect::<Vec<_>>(), [0, 1]);
    }
}

/// Linux writes all of a five-byte nop when a uprobe is put on it.
#[test]
fn no_hook_distance_covers_a_five_byte_nop() {
    let nop = [0x0f, 0x1f, 0x44, 0x00, 0x00];
    assert!(offsets(&[&[0x53], &nop[..]].concat(), 1, false).iter().all(|at| *at != 0));
    assert!(offsets(&[&[0x48, 0x85, 0xff], &nop[..]].concat(), 1, false).iter().all(|at| *at > 1));
    let far = [&[0x48, 0x81, 0xff, 0x00, 0x10, 0x00, 0x00], &nop[..]].concat();
    assert!(offsets(&far, 1, false).contains(&0));
}

#[test]
fn landings_below_the_first_mappable_address_are_no_places() {
    // cmp rdi, rax; nop …: the plain distance is negative, that behind the prefix as well.
    let bytes = [0x48, 0x39, 0xc7, 0x90, 0x90, 0x90, 0x90, 0x90];
    let low = Function { entry: 0x40_1000, ..function(&bytes, 1, false) };
    assert!(places(&low).iter().all(|of| of.landings.iter().all(|at| *at < 1 << 47)));
    assert!(places(&low).len() < places(&function(&bytes, 1, false)).len());
}

/// Target of the jump at `place` with `distance` in memory.
fn jump_target(place: &HookPlace, distance: [u8; 4]) -> u64 {
    let mut code = vec![0xe9];
    code.extend(distance);
    let mut decoder =
        iced_x86::Decoder::with_ip(64, &code, place.patch, iced_x86::DecoderOptions::NONE);
    decoder.decode().near_branch_target()
}

proptest! {
    /// Any bytes at all: no panic, and every promise of a place holds.
    #[test]
    fn places_of_any_bytes_are_consistent(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        size in prop::option::of(0..100_u64),
        arguments in 0..=3_u8,
        is_free: bool,
        entry in prop_oneof![Just(ENTRY), 0x40_0000..0x1000_0000_u64, Just(0x7fff_ffff_e000), any::<u64>()],
    ) {
        let function = Function { entry, bytes: &bytes, size, arguments, is_free };
        for place in places(&function) {
            let at = (place.patch - entry) as usize;
            prop_assert_eq!(bytes[at], place.original);
            prop_assert_ne!(place.original, 0xe9);
            prop_assert_eq!(&bytes[at + 1..at + 5], place.following.as_slice());
            prop_assert_eq!(place.landings[0], jump_target(&place, place.following));
            for subset in 0..16_u8 {
                let mut distance = place.following;
                for bit in (0..4).filter(|bit| subset & place.boundaries & 1 << bit != 0) {
                    distance[bit] = 0xcc;
                }
                prop_assert!(place.landings.contains(&jump_target(&place, distance)));
            }
            for landing in &place.landings {
                prop_assert!(*landing >= 0x1_0000 && *landing < 1 << 47);
                let code = trampoline(&place, *landing, *landing & !0xfff).unwrap();
                prop_assert_eq!(code.len() as u64, trampoline_length(&place));
            }
        }
    }

    /// The jumps that are found once for several functions exclude the places that the whole code
    /// excludes.
    #[test]
    fn jumps_found_once_are_those_of_the_whole_code(
        mut code in prop::collection::vec(
            prop_oneof![Just(0x53_u8), Just(0x90), Just(0x0f), Just(0xe9), any::<u8>()],
            600..700,
        ),
        entries in prop::collection::vec(0..300_u64, 1..4),
        jumps in prop::collection::vec((300..590_usize, 0..3_usize, -20..260_i64, 0..3_usize), 0..12),
    ) {
        for (at, function, offset, opcode) in jumps {
            let to = entries[function % entries.len()] as i64 + offset;
            let distance = (to - (at as i64 + 6)) as i32;
            let opcode = [[0x90, 0xe9], [0x0f, 0x84], [0x0f, 0x7f]][opcode];
            code[at..at + 2].copy_from_slice(&opcode);
            code[at + 2..at + 6].copy_from_slice(&distance.to_le_bytes());
        }
        let whole = Code { address: ENTRY, bytes: &code };
        let entries: Vec<u64> = entries.iter().map(|entry| ENTRY + entry).collect();
        let found = jumps_to(&entries, whole);
        for entry in entries {
            let bytes = &code[(entry - ENTRY) as usize..];
            let function = Function { entry, bytes, size: Some(48), arguments: 1, is_free: false };
            prop_assert_eq!(places_with(&function, &found), places_with(&function, &[whole]));
        }
    }

    /// Typical first instructions, in any order: behind each place, the trampoline restores the
    /// stack pointer.
    #[test]
    fn trampolines_restore_the_stack_pointer(parts in prop::collection::vec(0..6_usize, 1..12)) {
        const PARTS: [&[u8]; 6] = [
            &[0x55],
            &[0x41, 0x56],
            &[0x48, 0x83, 0xec, 0x18],
            &[0x48, 0x81, 0xec, 0x98, 0x01, 0x00, 0x00],
            &[0x48, 0x8d, 0x47, 0x17],
            &[0x48, 0x83, 0xff, 0x20],
        ];
        let bytes = [&parts.iter().flat_map(|part| PARTS[*part]).copied().collect::<Vec<u8>>()[..], &PADDING].concat();
        for place in places(&function(&bytes, 1, false)) {
            let code = trampoline(&place, place.landings[0], place.landings[0] & !0xfff).unwrap();
            let before = &bytes[..(place.patch - ENTRY) as usize];
            prop_assert_eq!(stack_growth(before) + stack_growth(&code), 0);
        }
    }
}

/// Number of bytes by which code makes the stack longer, according to iced.
fn stack_growth(code: &[u8]) -> i64 {
    let growth = |instruction: iced_x86::Instruction| match instruction.code() {
        iced_x86::Code::Sub_rm64_imm8 | iced_x86::Code::Sub_rm64_imm32 => {
            instruction.immediate(1) as i64
        }
        iced_x86::Code::Lea_r64_m if instruction.op0_register() == iced_x86::Register::RSP => {
            -(instruction.memory_displacement64() as i64)
        }
        _ => -i64::from(instruction.stack_pointer_increment()),
    };
    iced_x86::Decoder::new(64, code, iced_x86::DecoderOptions::NONE).iter().map(growth).sum()
}

/// Bytes that the jump covers would be predicted as the jump if they ran in place.
#[test]
fn bytes_covered_by_the_jump_are_not_run_in_place() {
    let of = function(FREE, 1, true);
    let place = &places(&of)[0];
    let address = ENTRY - 0x1_0000;
    let code = original(place, &of, address).unwrap();
    let mut decoder = Decoder::with_ip(64, &code, address, DecoderOptions::NONE);
    let last = std::iter::from_fn(|| decoder.can_decode().then(|| decoder.decode())).last();
    let back = last.unwrap().near_branch_target();
    assert!(back >= place.patch + 5, "{back:#x} of {:#x}", place.patch);
}
