//! The places of every function of the corpus, compared with what objdump says of it and with
//! `corpus/places.txt`.
//!
//! After a change of the corpus: `UPDATE_PLACES=1 cargo test -p sampler-inject --test places`, and
//! read the difference.

mod corpus;

use std::fmt::Write;

use corpus::{Entry, elsewhere, libraries};
use sampler_inject::prologue::{HookPlace, places_with, trampoline, trampoline_length};

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/places.txt");
const HEAD: &str = "\
# Places of the functions of prologues.txt, the best one first.
# ADDRESS NAME OFFSET/LANDINGS …
";

fn places(entry: &Entry) -> Vec<HookPlace> {
    let jumps = entry.jumps();
    places_with(&entry.function(), &elsewhere(&jumps))
}

fn offset(entry: &Entry, place: &HookPlace) -> usize {
    (place.patch - entry.entry()) as usize
}

#[test]
fn places_are_those_of_the_corpus() {
    let mut text = String::from(HEAD);
    for library in libraries() {
        writeln!(text, "\n{}", library.head).unwrap();
        for entry in &library.functions {
            write!(text, "{:x} {}", entry.address, entry.names[0]).unwrap();
            for place in places(entry) {
                write!(text, " {}/{}", offset(entry, &place), place.landings.len()).unwrap();
            }
            text.push('\n');
        }
    }
    if std::env::var_os("UPDATE_PLACES").is_some() {
        std::fs::write(EXPECTED, &text).unwrap();
    }
    let expected = std::fs::read_to_string(EXPECTED).unwrap();
    for (line, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text, expected);
}

/// Every place begins where objdump has an instruction, and its window has the boundaries that
/// objdump has.
#[test]
fn boundaries_are_those_of_objdump() {
    for (library, entry, place) in all() {
        let at = offset(&entry, &place);
        let start = at - usize::from(place.prefix.is_some());
        assert!(entry.starts.contains(&start), "{library} {:x}+{at}", entry.address);
        for bit in 0..4 {
            let is_boundary = place.boundaries & 1 << bit != 0;
            let is_start = entry.starts.contains(&(at + 1 + bit));
            let is_straight = entry.starts.last().is_some_and(|last| at + 1 + bit < *last);
            // Behind a jump, any byte may begin an instruction.
            assert!(is_boundary || !is_straight || !is_start, "{library} {:x}+{at}", entry.address);
        }
    }
}

/// Checked with objdump's list of all jumps of the library.
#[test]
fn no_jump_leads_between_the_entry_and_a_place() {
    for (library, entry, place) in all() {
        let start = (offset(&entry, &place) - usize::from(place.prefix.is_some())) as u64;
        let is_entered = entry.entered.iter().any(|target| (1..=start).contains(target));
        assert!(!is_entered, "{library} {:x}+{start}", entry.address);
    }
}

/// Writes an `int3` at every boundary of the window in every combination, as other tools would, and
/// follows the jump.
#[test]
fn every_combination_of_breakpoints_leads_to_a_landing() {
    let mut jumps = 0;
    for (library, entry, place) in all() {
        let at = offset(&entry, &place);
        let mut reached = Vec::new();
        for subset in 0..16_u8 {
            let mut memory = entry.bytes.clone();
            memory[at] = 0xe9;
            let foreign = (0..4).filter(|bit| subset & place.boundaries & 1 << bit != 0);
            foreign.for_each(|bit: usize| memory[at + 1 + bit] = 0xcc);
            let start = at - usize::from(place.prefix.is_some());
            let jump = decode(&memory[start..], entry.entry() + start as u64);
            assert_eq!(
                jump.code(),
                iced_x86::Code::Jmp_rel32_64,
                "{library} {:x}+{at}",
                entry.address
            );
            let target = jump.near_branch_target();
            assert!(place.landings.contains(&target), "{library} {:x}+{at}", entry.address);
            if subset == 0 {
                assert_eq!(place.landings[0], target);
            }
            reached.push(target);
            jumps += 1;
        }
        // Every landing is the target of some combination.
        assert!(place.landings.iter().all(|landing| reached.contains(landing)));
    }
    assert!(jumps > 40_000, "{jumps}");
}

#[test]
fn trampolines_have_their_length_and_do_not_overlap() {
    for (library, entry, place) in all() {
        let length = trampoline_length(&place);
        let mut landings = place.landings.clone();
        landings.sort_unstable();
        for landing in &landings {
            let code = trampoline(&place, *landing, landing + 4096).unwrap();
            assert_eq!(code.len() as u64, length, "{library} {:x}", entry.address);
        }
        assert!(landings.windows(2).all(|pair| pair[0] + length <= pair[1]));
    }
}

/// Every C function has a hook place, unless it is only a jump to another function.
#[test]
fn only_functions_that_are_jumps_have_no_place() {
    for library in libraries() {
        for entry in &library.functions {
            let is_jump = entry.bytes[0] == 0xe9;
            assert_eq!(places(entry).is_empty(), is_jump, "{} {:x}", library.head, entry.address);
        }
    }
}

fn all() -> Vec<(&'static str, Entry, HookPlace)> {
    let mut all = Vec::new();
    for library in libraries() {
        for entry in library.functions {
            for place in places(&entry) {
                all.push((library.head, entry.clone(), place));
            }
        }
    }
    assert!(all.len() > 2_000, "{}", all.len());
    all
}

fn decode(bytes: &[u8], address: u64) -> iced_x86::Instruction {
    iced_x86::Decoder::with_ip(64, bytes, address, iced_x86::DecoderOptions::NONE).decode()
}
