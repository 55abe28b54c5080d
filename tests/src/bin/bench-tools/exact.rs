//! Exact figures by place: a preloaded library counts the bytes that every caller of malloc asks
//! for (`benches/exact.c`).

use crate::scratch::{Scratch, Variable};
use anyhow::{Context, Result, ensure};
use sampler_common::share::Holder;
use sampler_daemon::parser::{FILE_TIME, NoDebugFiles, Parser};
use sampler_daemon::symbolize::Symbolizer;
use sampler_daemon::unwind::{Image, Modules};
use sampler_tests::build;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of records in the table, and size of a word, as `benches/exact.c` lays them out.
const PLACES: usize = 65_536;
const WORD: usize = 8;

/// Bytes by return address.
pub(crate) type Bytes = HashMap<u64, u64>;

/// The table of one process.
pub(crate) struct Exact {
    library: PathBuf,
    table: PathBuf,
}

impl Exact {
    /// Compiles the library, and names a new table.
    ///
    /// # Errors
    /// If the library does not compile.
    pub(crate) fn prepare(scratch: &Scratch) -> Result<Exact> {
        let library = build::compile_library("exact.c")?;
        let table = scratch.path("exact");
        let _ = fs::remove_file(&table);
        Ok(Exact { library, table })
    }

    /// Environment variables that the program needs.
    pub(crate) fn environment(&self) -> Vec<Variable> {
        let path = |path: &PathBuf| path.display().to_string();
        vec![("LD_PRELOAD", path(&self.library)), ("EXACT_INTO", path(&self.table))]
    }

    /// Bytes so far.
    ///
    /// # Errors
    /// If the library does not work, or found more places than the table has room for.
    pub(crate) fn bytes(&self) -> Result<Bytes> {
        Ok(self.places()?.into_iter().map(|[place, bytes, _]| (place, bytes)).collect())
    }

    fn places(&self) -> Result<Vec<[u64; 3]>> {
        let table = fs::read(&self.table).with_context(|| format!("read {}", self.table.display()));
        parse(&table.context("nothing was counted")?)
    }
}

/// Return address, bytes and number of calls of every place.
fn parse(table: &[u8]) -> Result<Vec<[u64; 3]>> {
    let words: Vec<u64> = table
        .chunks_exact(WORD)
        .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        .collect();
    ensure!(words.len() == 1 + 3 * PLACES, "the table of exact figures has {} words", words.len());
    ensure!(words[0] == 0, "{} allocations found no room in the table", words[0]);
    let places = words[1..].as_chunks::<3>().0.iter();
    Ok(places.filter(|place| place[0] != 0).copied().collect())
}

/// Bytes that were added between two readings.
pub(crate) fn since(before: &Bytes, after: &Bytes) -> Bytes {
    let grown = |(address, bytes): (&u64, &u64)| {
        (*address, bytes - before.get(address).copied().unwrap_or(0))
    };
    after.iter().map(grown).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Names places of a process in the way that profiles do.
pub(crate) struct Names {
    image: Image,
    modules: Modules,
    symbolizer: Symbolizer<Parser>,
}

impl Names {
    /// Reads the present mappings of `pid`.
    ///
    /// # Errors
    /// If the process is gone, or samplerd is not built.
    pub(crate) fn of(pid: u32) -> Result<Names> {
        let mut modules = Modules::default();
        let image = Image::open(Holder::of_unknown_user(pid), &mut modules)
            .context("read the program's mappings")?;
        let parser = Parser::of(&build::program("samplerd")?, Box::new(NoDebugFiles));
        Ok(Names { image, modules, symbolizer: Symbolizer::new(parser, FILE_TIME) })
    }

    /// Sums by calling function: several return addresses may belong to one function.
    pub(crate) fn sum(&mut self, bytes: &Bytes) -> HashMap<String, f64> {
        let mut sums = HashMap::new();
        for (address, bytes) in bytes {
            // The address before the return address is inside the call.
            let frame = self.image.resolve(&mut self.modules, address - 1);
            let module = Arc::clone(self.modules.get(frame.module));
            let lines = self.symbolizer.symbolize(&[(module, frame.offset)]);
            let innermost = lines.first().and_then(|lines| lines.first());
            let name = innermost.map_or_else(String::new, |line| line.function.clone());
            *sums.entry(name).or_insert(0.0) += *bytes as f64;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_and_subtracted() {
        let mut table = vec![0u8; WORD * (1 + 3 * PLACES)];
        let mut set = |word: usize, value: u64| {
            table[word * WORD..][..WORD].copy_from_slice(&value.to_le_bytes());
        };
        set(1, 0x7f00_1234);
        set(2, 640);
        set(3, 10);
        assert_eq!(parse(&table).unwrap(), [[0x7f00_1234, 640, 10]]);
        let before = Bytes::from([(0x7f00_1234, 600), (1, 5)]);
        let after = Bytes::from([(0x7f00_1234, 640), (1, 5), (2, 7)]);
        assert_eq!(since(&before, &after), Bytes::from([(0x7f00_1234, 40), (2, 7)]));
        table[0] = 1;
        assert!(parse(&table).is_err());
    }
}
