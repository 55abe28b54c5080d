//! Equal evidence gives equal frames, whatever else a stack holds. And every part of the evidence
//! is needed.

use super::*;
use crate::unwind::fixture::Fixture;
use crate::unwind::{Address, Frame, Image, Modules, Registers, StackMemory, UnwindEnd};
use sampler_common::share::Holder;

struct Unwound {
    frames: Vec<Frame>,
    end: UnwindEnd,
    evidence: Evidence,
}

/// A program whose stack is unwound repeatedly.
struct Stack {
    fixture: Fixture,
    modules: Modules,
    image: Image,
}

impl Stack {
    fn of(scenario: &str) -> Stack {
        let fixture = Fixture::run(scenario, 64 * 1024);
        let mut modules = Modules::default();
        let image = Image::open(Holder::of_unknown_user(fixture.pid()), &mut modules).unwrap();
        Stack { fixture, modules, image }
    }

    fn unwind(&mut self, registers: Registers, bytes: &[u8]) -> Unwound {
        let mut frames = Vec::new();
        let memory = StackMemory { bytes, ..self.fixture.stack() };
        let end = self.image.unwind(&mut self.modules, registers, memory, &mut frames);
        Unwound { frames, end, evidence: self.image.evidence().clone() }
    }
}

fn random_bytes(random: &mut u64, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8)).flat_map(|_| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        random.to_le_bytes()
    });
    words.take(length).collect()
}

fn overwrite(bytes: &mut [u8], start: u64, words: &[(u64, u64)]) {
    for (address, value) in words {
        let at = (address - start) as usize;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// Unwinds stacks that share only the evidence with the program's stack. Returns the evidence.
fn is_all_that_matters(scenario: &str) -> Evidence {
    let mut stack = Stack::of(scenario);
    let (registers, copy) = (stack.fixture.registers(), stack.fixture.stack().bytes.to_vec());
    let first = stack.unwind(registers, &copy);
    assert_eq!(first.end, UnwindEnd::Complete, "{scenario}");
    let words = first.evidence.words().unwrap().to_vec();
    let mut random = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..100 {
        let mut bytes = random_bytes(&mut random, copy.len());
        overwrite(&mut bytes, registers.sp, &words);
        let bp = if first.evidence.uses_bp() { registers.bp } else { random };
        let again = stack.unwind(Registers { bp, ..registers }, &bytes);
        assert_eq!((again.frames, again.end), (first.frames.clone(), first.end), "{scenario}");
        assert_eq!(again.evidence, first.evidence, "{scenario}");
    }
    // The words alone are enough.
    let mut frames = Vec::new();
    let address = Address::Return(registers.ip);
    let Stack { image, modules, .. } = &mut stack;
    let end = image.unwind_words(address, modules, registers, &words, &mut frames);
    assert_eq!((frames, end), (first.frames.clone(), first.end), "{scenario}");
    // Each word is needed.
    for (index, (address, value)) in words.iter().enumerate() {
        let mut bytes = copy.clone();
        overwrite(&mut bytes, registers.sp, &[(*address, value.wrapping_add(16))]);
        let other = stack.unwind(registers, &bytes);
        let is_same = (other.frames, other.end) == (first.frames.clone(), first.end);
        assert!(!is_same, "{scenario}: word {index} of {} does not matter", words.len());
    }
    first.evidence
}

#[test]
fn evidence_without_frame_pointers_is_return_addresses() {
    for scenario in ["chain", "inlined", "callback", "thread"] {
        let evidence = is_all_that_matters(scenario);
        eprintln!("{scenario}: {} words", evidence.words().map_or(0, <[_]>::len));
    }
    assert!(!is_all_that_matters("chain").uses_bp());
}

#[test]
fn a_frame_found_by_the_frame_pointer_depends_on_it() {
    for scenario in ["dynamic", "realigned"] {
        let evidence = is_all_that_matters(scenario);
        let words = evidence.words().unwrap();
        let stack = words[0].0 & !0xff_ffff..=words[0].0 | 0xff_ffff;
        let is_frame = |(_, value): &(u64, u64)| stack.contains(value);
        assert!(evidence.uses_bp() || words.iter().any(is_frame), "{scenario}: {words:x?}");
    }
}

#[test]
fn words_outside_the_comparison_make_evidence_incomplete() {
    for scenario in ["signal", "jit", "recursion", "alternate-stack"] {
        let mut stack = Stack::of(scenario);
        let (registers, copy) = (stack.fixture.registers(), stack.fixture.stack().bytes.to_vec());
        assert_eq!(stack.unwind(registers, &copy).evidence.words(), None, "{scenario}");
    }
}

#[test]
fn a_word_counts_once_and_too_many_are_no_evidence() {
    let mut evidence = Evidence::default();
    for word in 0..MAX_CACHED_WORDS as u64 {
        evidence.word(word * 8, word);
        evidence.word(word * 8, word);
    }
    assert_eq!(evidence.words().map(<[_]>::len), Some(MAX_CACHED_WORDS));
    evidence.word(4096, 1);
    assert_eq!(evidence.words(), None);
    evidence.clear();
    assert_eq!(evidence.words(), Some(&[][..]));
}
