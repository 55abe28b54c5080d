//! Entries for the fuzzer: what is read of a file or of `/proc` before a process is attached to.

use super::allocator::contents::Contents;
use super::allocator::spec;
use super::allocator::spec::Spec;
use super::code::moving::Executables;
use super::elf::notes;
use super::mappings::maps;
use super::process::cgroup;
use super::usdt;
use std::fs::File;

/// Searches an ELF file for allocators, in full.
pub fn contents(file: &File) {
    for executables in [Executables::Checked, Executables::All] {
        let _ = Contents::read(file, "/lib/fuzz.so", &spec::EMPTY, executables);
    }
}

/// Reads notes: build ids, signs of Go, and USDT probes.
pub fn notes(bytes: &[u8]) {
    for align in [0, 4, 8, u64::MAX] {
        let _ = notes::build_id(bytes, align);
        let _ = notes::is_go(bytes, align);
    }
    let _ = usdt::count_notes(bytes);
}

/// Reads lines of `/proc/PID/maps` and of `/proc/PID/cgroup`.
pub fn proc_lines(bytes: &[u8]) {
    let _ = maps::lines(bytes).count();
    let _ = cgroup::parse(&String::from_utf8_lossy(bytes));
}

/// Reads a user's specification of allocators.
pub fn allocator_spec(text: &str) {
    if let Ok(spec) = Spec::parse(text) {
        let _ = spec.entries("/lib/fuzz.so", "fuzz.so");
    }
}
