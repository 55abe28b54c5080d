//! Executes hooked functions of the corpus: what the image finds is a call, and what stands for the function is the function.
//!
//! Each function lies at the address that its places were found for. Only its beginning runs, up to the instruction behind the
//! hooked one. Everything behind that sees the same registers, flags and stack as without the hook.

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
use sampler_inject::prologue::{Place, places_with};
use step::End;

/// Calls of each function with each place and each combination of breakpoints.
const CALLS: usize = 3;

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
fn window(place: &Place) -> Vec<u64> {
    (0..4).filter(|bit| place.boundaries & 1 << bit != 0).map(|bit| place.patch + 1 + bit).collect()
}

fn subset(of: &[u64], bits: usize) -> Vec<u64> {
    of.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, at)| *at).collect()
}

fn for_each_bench(mut test: impl FnMut(&str, &mut Bench, &Place, &mut Counts)) -> Counts {
    // All tests use the same addresses.
    static ADDRESSES: Mutex<()> = Mutex::new(());
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
fn hooked_functions_are_called_and_do_what_they_did() {
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

/// Other tools' breakpoints on the instructions in front of the hook and within its window: the kernel runs a copy of such an instruction.
#[test]
fn breakpoints_in_front_of_the_hook_and_within_its_window_change_nothing() {
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

/// Another tool's breakpoint on the hooked instruction itself hides the hook: the function runs as it was, in place.
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
