//! Entries for the fuzzer: unwind tables and perf maps.

use super::cfi::Cfi;
use super::elf::{Headers, Sections};
use super::generated::name_budget::NameShare;
use super::generated::perf_map::{AddedLines, PerfMap};
use super::generated::replaced_names::{Added, ReplacedNames};
use super::snapshot::{Reader, Registers, StackMemory};
use super::step::State;
use gimli::UnwindContext;
use std::fs::File;
use std::sync::Arc;

/// Number of addresses at which a table is asked for a rule, one in each page.
const PAGES: u64 = 64;
/// Address of the stack on which the rules are applied.
const STACK: u64 = 0x7fff_0000;

/// Reads a module's headers and unwind tables, and applies the rules at some addresses.
pub fn unwind_tables(file: &File) {
    if let Some(headers) = Headers::of_file(file) {
        let _ = headers.code_segments();
    }
    let Some(cfi) = Cfi::new(Sections::of_file(file)) else { return };
    let mut context = UnwindContext::new();
    let stack: Vec<u8> = (0..=255).cycle().take(4096).collect();
    for ip in (0..PAGES).map(|page| page << 12) {
        let _ = cfi.function_code(ip);
        let Some(rule) = cfi.rule(ip, &mut context) else { continue };
        let memory = StackMemory { start: STACK, bytes: &stack, hijacked: None };
        let mut state = State::new(Registers { ip, sp: STACK, bp: STACK + 64 });
        let _ = state.by_rule(&rule, Some(&cfi), &mut Reader::new(memory));
    }
}

/// Reads a perf map, then reads its end again as lines that were added later.
pub fn perf_map(file: &File) {
    let mut share = NameShare::of(&Arc::default(), 0);
    let mut replaced = ReplacedNames::default();
    let mut map = PerfMap::default();
    for begin in [u64::MAX, 0] {
        let at = Added { from_ns: 0, until_ns: 1 };
        let mut added = AddedLines { begin, at, replaced: &mut replaced };
        map.read(file, 1 << 12, &mut share, &mut added);
        let _ = map.find(0x1000);
    }
}
