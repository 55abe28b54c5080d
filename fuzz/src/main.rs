//! Fuzzes one reader: the one that `SAMPLER_FUZZ` names.
//!
//! One program has all targets, since linking it takes longer than compiling it. A panic, an input
//! that takes ten seconds, and an input that takes memory beyond the bound each end the program.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use sampler_common::encode::json;
use sampler_daemon::{bpf, http, inspect, parser, symbolize, unwind};
use std::env;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::str;
use std::sync::LazyLock;

/// The targets, by name.
const TARGETS: [(&str, fn(&[u8])); 11] = [
    ("elf", |bytes| inspect::fuzz::contents(&file(bytes))),
    ("unwind-tables", |bytes| unwind::fuzz::unwind_tables(&file(bytes))),
    ("symbols", |bytes| {
        let file = file(bytes);
        symbolize::fuzz::symbols(&format!("/proc/self/fd/{}", file.as_raw_fd()));
    }),
    ("notes", inspect::fuzz::notes),
    ("perf-map", |bytes| unwind::fuzz::perf_map(&file(bytes))),
    ("proc", inspect::fuzz::proc_lines),
    ("ring", bpf::fuzz::ring_record),
    ("packets", parser::fuzz::packets),
    ("json", |bytes| with_text(bytes, |text| drop(json::read(text)))),
    ("spec", |bytes| with_text(bytes, inspect::fuzz::allocator_spec)),
    ("query", |bytes| with_text(bytes, http::fuzz::query)),
];

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var("SAMPLER_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(of, _)| *of == name);
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    found.unwrap_or_else(|| panic!("SAMPLER_FUZZ={name}: must be one of {}", names.join(", "))).1
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));

fn with_text(bytes: &[u8], read: impl Fn(&str)) {
    if let Ok(text) = str::from_utf8(bytes) {
        read(text);
    }
}

/// A file with these contents.
fn file(bytes: &[u8]) -> File {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("make a file in memory");
    let file = File::from(file);
    file.write_all_at(bytes, 0).expect("write to a file in memory");
    file
}
