//! Entry for the fuzzer: symbols and debug data of a file.

use super::elf::{Places, Symbolizer};

/// Looks up some offsets of the file at `path`, with its debug data.
pub fn symbols(path: &str) {
    let offsets: Vec<u64> = (0..64).map(|page| page << 8).collect();
    let mut symbolizer = Symbolizer::new();
    let _ = symbolizer.lines(path, Places::Offsets(&offsets), true);
    let _ = symbolizer.lines(path, Places::Addresses(&offsets), true);
}
