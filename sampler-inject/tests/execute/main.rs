//! Executes hooked functions of the corpus: what the image finds is a call, and what stands for the
//! function is the function.
//!
//! Each function lies at the address that its places were found for. Only its beginning runs, up to
//! the instruction behind the hooked one. Everything behind that sees the same registers, flags and
//! stack as without the hook.

#![allow(unsafe_code, reason = "executes machine code")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "../corpus/mod.rs"]
mod corpus;

mod bench;
mod memory;
mod step;

use std::sync::Mutex;

use bench::{Bench, IMAGE};
use corpus::{elsewhere, libraries, random};
use proptest::prelude::*;
use sampler_inject::prologue::{Function, HookPlace, places_with};
use step::End;

/// Calls of each function with each place and each combination of breakpoints.
const CALLS: usize = 3;

/// All tests use the same addresses.
static ADDRESSES: Mutex<()> = Mutex::new(());

/// What the tests did.
#[derive(Debug, Default)]
struct Counts {
    places: usize,
    /// Places where this process has something itself.
    occupied: usize,
    calls: usize,
    /// Calls that left before the hook, since they free nothing or cannot succeed.
    left_before: usize,
    /// Calls that fault without the hook as well: made-up arguments are no pointers.
    faults: usize,
}

/// Addresses of boundaries within the window.
fn window(place: &HookPlace) -> Vec<u64> {
    (0..4).filter(|bit| place.boundaries & 1 << bit != 0).map(|bit| place.patch + 1 + bit).collect()
}

fn subset(of: &[u64], bits: usize) -> Vec<u64> {
    of.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, at)| *at).collect()
}

fn for_each_bench(mut test: impl FnMut(&str, &mut Bench, &HookPlace, &mut Counts)) -> Counts {
    let _held = ADDRESSES.lock();
    let mut counts = Counts::default();
    for library in libraries() {
        for entry in &library.functions {
            let jumps = entry.jumps();
            for place in places_with(&entry.function(), &elsewhere(&jumps)) {
                counts.places += 1;
                let name = format!("{} {} {:x}", library.head, entry.names[0], place.patch);
                match Bench::new(entry.function(), &place) {
                    Some(mut bench) => test(&name, &mut bench, &place, &mut counts),
                    None => counts.occupied += 1,
                }
            }
        }
    }
    counts
}

#[test]
fn hooked_functions_return_the_same_results() {
    let mut state = 1;
    let counts = for_each_bench(|name, bench, place, counts| {
        let window = window(place);
        for bits in 0..1 << window.len() {
            let foreign = subset(&window, bits);
            for _ in 0..CALLS {
                call(name, bench, &foreign, &mut state, counts);
            }
        }
    });
    println!("{counts:?}");
    assert!(counts.occupied * 20 < counts.places, "{counts:?}");
    assert!(counts.faults * 5 < counts.calls, "{counts:?}");
    assert!(counts.left_before > 0, "{counts:?}");
}

/// Other tools' breakpoints on the instructions in front of the hook and within its window: the
/// kernel runs a copy of such an instruction.
#[test]
fn breakpoints_near_the_hook_change_no_results() {
    let mut state = 2;
    let counts = for_each_bench(|name, bench, place, counts| {
        let hooked = bench.before().len() - 1;
        let mut points = bench.before()[..hooked].to_vec();
        points.extend(window(place));
        let all = (1 << points.len()) - 1;
        for bits in [all, random(&mut state) as usize & all, random(&mut state) as usize & all] {
            call(name, bench, &subset(&points, bits), &mut state, counts);
        }
    });
    println!("{counts:?}");
    assert!(counts.faults * 5 < counts.calls, "{counts:?}");
}

/// Another tool's breakpoint on the hooked instruction itself hides the hook: the function runs as
/// it was, in place.
#[test]
fn a_breakpoint_over_the_hook_leaves_the_function_as_it_was() {
    let mut state = 3;
    let counts = for_each_bench(|name, bench, place, counts| {
        let hooked = bench.before().len() - 1;
        let over = [bench.before()[hooked]];
        for _ in 0..CALLS {
            counts.calls += 1;
            let registers = bench.registers(|| random(&mut state));
            let expected = bench.run_unhooked(&registers, &[]);
            if expected.end != End::Left {
                counts.faults += 1;
                continue;
            }
            let covered = bench.run_covered(&registers, &over);
            assert_eq!(covered.seen(), expected.seen(), "{name} {:x}", place.patch);
        }
    });
    println!("{counts:?}");
    assert!(counts.faults * 5 < counts.calls, "{counts:?}");
}

/// Instructions by their opcodes, with operands as they come.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    const OPCODES: [&[u8]; 41] = [
        &[0x01],
        &[0x03],
        &[0x09],
        &[0x0b],
        &[0x11],
        &[0x13],
        &[0x21],
        &[0x23],
        &[0x29],
        &[0x2b],
        &[0x31],
        &[0x33],
        &[0x39],
        &[0x3b],
        &[0x50],
        &[0x53],
        &[0x54],
        &[0x55],
        &[0x56],
        &[0x57],
        &[0x63],
        &[0x69],
        &[0x6b],
        &[0x81],
        &[0x83],
        &[0x85],
        &[0x87],
        &[0x89],
        &[0x8b],
        &[0x8d],
        &[0x90],
        &[0x98],
        &[0x99],
        &[0xb8],
        &[0xc1],
        &[0xd3],
        &[0xf7],
        &[0x0f, 0x90],
        &[0x0f, 0xa3],
        &[0x0f, 0xb6],
        &[0x0f, 0xbd],
    ];
    // Nothing but registers, then what programs begin with, then branches by each condition.
    let registers = (0..OPCODES.len(), 0x40..0x50_u8, any::<u8>(), any::<[u8; 8]>()).prop_map(
        |(opcode, prefix, registers, rest)| {
            [&[prefix], OPCODES[opcode], &[registers | 0xc0], &rest[..]].concat()
        },
    );
    let any_operands = (0..OPCODES.len(), 0x40..0x50_u8, any::<[u8; 9]>())
        .prop_map(|(opcode, prefix, rest)| [&[prefix], OPCODES[opcode], &rest[..]].concat());
    let usual = prop::sample::select(vec![
        vec![0x48, 0x83, 0xec, 0x18],
        vec![0x48, 0x85, 0xff],
        vec![0x40, 0xf6, 0xc7, 0x0f],
        vec![0x48, 0x89, 0xf8],
        vec![0x48, 0xf7, 0xe6],
        vec![0x41, 0x56],
        vec![0x55],
        vec![0x48, 0x89, 0xfd],
    ]);
    let branch = (0x70..0x80_u8).prop_map(|opcode| vec![opcode, 0x7f]);
    prop_oneof![4 => registers, 2 => any_operands, 4 => usual, 1 => branch]
        .prop_map(|bytes| first_instruction(&bytes))
}

/// The bytes of one instruction; none where none begins.
fn first_instruction(bytes: &[u8]) -> Vec<u8> {
    let decoded = iced_x86::Decoder::new(64, bytes, iced_x86::DecoderOptions::NONE).decode();
    let length = if decoded.is_invalid() { 0 } else { decoded.len() };
    bytes[..length].to_vec()
}

proptest! {
    /// Functions that nobody would write: what is passed can be undone, and what is copied does the
    /// same.
    #[test]
    fn generated_functions_return_the_same_when_hooked(
        instructions in prop::collection::vec(instruction(), 1..12),
        arguments in 1..=3_u8,
        is_free: bool,
        seed: u64,
    ) {
        let mut bytes = instructions.concat();
        bytes.extend([0x0f, 0x1f, 0x00, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90]);
        let size = Some(bytes.len() as u64);
        let function = Function { entry: corpus::BASE + 0x123, bytes: &bytes, size, arguments, is_free };
        let _held = ADDRESSES.lock();
        let (mut state, mut counts) = (seed, Counts::default());
        for place in sampler_inject::prologue::places(&function) {
            let Some(mut bench) = Bench::new(function, &place) else { continue };
            let name = format!("{bytes:02x?} {:x}", place.patch);
            for bits in 0..1 << window(&place).len() {
                let foreign = subset(&window(&place), bits);
                call(&name, &mut bench, &foreign, &mut state, &mut counts);
            }
        }
    }
}

/// One call, with and without the hook.
fn call(name: &str, bench: &mut Bench, foreign: &[u64], state: &mut u64, counts: &mut Counts) {
    counts.calls += 1;
    let registers = bench.registers(|| random(state));
    let expected = bench.run_unhooked(&registers, &[]);
    if expected.end != End::Left {
        counts.faults += 1;
        return;
    }
    let other = bench.with_other_scratch(&registers, || random(state));
    if bench.run_unhooked(&other, &[]).end != End::Left {
        counts.faults += 1;
        return;
    }
    let hooked = bench.run_hooked(&other, foreign);
    assert_eq!(hooked.end, End::Left, "{name}");
    if hooked.next() != IMAGE {
        counts.left_before += 1;
        assert!(bench.may_be_missed(&registers), "{name}: {registers:x?}");
        assert_eq!(hooked.next(), expected.next(), "{name}");
        return;
    }
    assert!(bench.is_like_a_call(&hooked, &registers), "{name}: {:x?}", hooked.seen());
    let original = bench.run_original(&registers);
    assert_eq!(original.seen(), expected.seen(), "{name}");
}
