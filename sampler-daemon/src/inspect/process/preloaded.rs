//! The settings of our own preloaded library in a process: rate in force, requested rate, limit of
//! samples a second, and count of undelivered samples.
//!
//! Reference: `sampler-preload/src/settings.rs`. The library exports the block
//! `sampler_preload_settings`. Its first word is a magic number, and the rate is the second word.
//! The block is the target's memory. So it is written only if the magic number is found, and a word
//! that is read is a rate or nothing.

use crate::inspect::elf::Elf;
use crate::inspect::mappings::{self, Backing};
use sampler_common::sampling::{Rate, token_bucket};
use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::FileExt as _;

/// The block's symbol.
const SYMBOL: &str = "sampler_preload_settings";
/// The block's first word.
const MAGIC: u64 = u64::from_le_bytes(*b"SMPLPRE6");
/// The block's size, bytes.
const BLOCK_BYTES: u64 = 128;
/// Words of the block. First the rate in force, and behind it the requested rate. Then undelivered
/// samples, and nanoseconds for each sample at the limit. Then the lowest rate (in force for the
/// limit or at a fork), how often the limit lowered the rate, and until when samples are paid.
const RATE_WORD: usize = 1;
const WANTED_RATE_WORD: usize = 2;
const UNDELIVERED_WORD: usize = 8;
const PERIOD_WORD: usize = 9;
const LOWEST_RATE_WORD: usize = 10;
const RAISES_WORD: usize = 11;
const PAID_UNTIL_WORD: usize = 12;

/// The place of the block in a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preloaded {
    /// File offset.
    offset: u64,
}

impl Preloaded {
    /// Finds the block in a file; `None` if the file is not our library.
    pub fn find(file: &File) -> Option<Preloaded> {
        let elf = Elf::read(file).ok()?;
        let offset = elf.file_offset(elf.dynamic_data(SYMBOL).ok()??).ok()?;
        let mut block = [0; BLOCK_BYTES as usize];
        file.read_exact_at(&mut block, offset).ok()?;
        block.starts_with(&MAGIC.to_le_bytes()).then_some(Preloaded { offset })
    }

    /// Finds the block in process `pid`, which has the library by `path`.
    ///
    /// # Errors
    /// If the process is gone, or its block has no magic number.
    pub fn block(&self, pid: u32, path: &str) -> io::Result<Block> {
        let mappings = mappings::read(pid)?;
        let holds = |mapping: &&mappings::Mapping| {
            let end = mapping.offset + (mapping.end - mapping.start);
            // A page between code and data may be mapped twice. The mapping of data comes last.
            mapping.backing == Backing::File(path.to_owned())
                && (mapping.offset..end).contains(&self.offset)
        };
        let last = mappings.iter().rfind(holds);
        let address = last.map(|mapping| mapping.start + (self.offset - mapping.offset));
        let missing = || Error::new(ErrorKind::NotFound, format!("{path} is not mapped"));
        let block = Block { pid, address: address.ok_or_else(missing)? };
        block.read().map(|_| block)
    }
}

/// The block in a process.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pid: u32,
    address: u64,
}

/// The contents of the block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The rate in force; `None` while the process has not allocated yet.
    pub rate: Option<Rate>,
    /// The requested rate. The rate in force is lower while the limit demands it.
    pub requested: Option<Rate>,
    /// The lowest rate that was in force.
    pub lowest: Option<Rate>,
    /// How often the limit lowered the rate below the requested one.
    pub raises: u64,
    /// The time until which the sent samples are paid, in nanoseconds of the monotonic clock.
    pub until_ns: u64,
    /// Time from one sample to the next within the limit, nanoseconds; 0: no limit.
    pub period_ns: u64,
    /// Samples that nobody received, since the program began or was forked.
    pub undelivered: u64,
}

impl Block {
    /// Reads the block.
    ///
    /// # Errors
    /// If the process is gone, or runs another program by now.
    pub fn read(&self) -> io::Result<State> {
        self.read_in(&File::open(format!("/proc/{}/mem", self.pid))?)
    }

    /// Requests another rate and puts it into force. The library uses it from one of its next calls
    /// on.
    ///
    /// # Errors
    /// As for [`Block::read`].
    pub fn set_rate(&mut self, rate: Rate) -> io::Result<()> {
        // In this order: the library puts a rate of its own into force, and then looks whether
        // another one was asked for meanwhile.
        self.write(WANTED_RATE_WORD, &[rate.raw()])?;
        self.write(RATE_WORD, &[rate.raw()])
    }

    /// Limits the library to one sample in `period_ns` nanoseconds. What the process owes stays the
    /// same number of samples. `now_ns` is of the monotonic clock.
    ///
    /// # Errors
    /// As for [`Block::read`].
    pub fn set_period(&mut self, period_ns: u64, now_ns: u64) -> io::Result<()> {
        let State { until_ns, period_ns: before_ns, .. } = self.read()?;
        let until = token_bucket::with_period(until_ns, now_ns, before_ns, period_ns);
        if until != until_ns {
            self.write(PAID_UNTIL_WORD, &[until])?;
        }
        self.write(PERIOD_WORD, &[period_ns])
    }

    /// Resets the lowest rate and the count of lowerings.
    ///
    /// # Errors
    /// As for [`Block::read`].
    pub fn begin_raises(&mut self) -> io::Result<()> {
        const { assert!(RAISES_WORD == LOWEST_RATE_WORD + 1) };
        self.write(LOWEST_RATE_WORD, &[u64::MAX, 0])
    }

    fn write(&self, first: usize, words: &[u64]) -> io::Result<()> {
        let path = format!("/proc/{}/mem", self.pid);
        let memory = OpenOptions::new().read(true).write(true).open(path)?;
        self.read_in(&memory)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write_all_at(&bytes, self.address + 8 * first as u64)
    }

    fn read_in(&self, memory: &File) -> io::Result<State> {
        let mut bytes = [0; BLOCK_BYTES as usize];
        memory.read_exact_at(&mut bytes, self.address)?;
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        if word(0) != MAGIC {
            let message = format!("pid {}: no settings at {:#x}", self.pid, self.address);
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        let rate = |rate: Rate| (rate != Rate::NEVER).then_some(rate);
        let [set, requested] = [word(RATE_WORD), word(WANTED_RATE_WORD)].map(Rate::from_raw);
        Ok(State {
            rate: rate(set),
            requested: rate(requested),
            // While there is no lowest rate, the word is above every rate.
            lowest: rate(set.min(Rate::from_raw(word(LOWEST_RATE_WORD)))),
            raises: word(RAISES_WORD),
            until_ns: word(PAID_UNTIL_WORD),
            period_ns: word(PERIOD_WORD),
            undelivered: word(UNDELIVERED_WORD),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_have_no_preloaded_block() {
        assert_eq!(Preloaded::find(&File::open("/proc/self/exe").unwrap()), None);
        assert_eq!(Preloaded::find(&File::open("/etc/passwd").unwrap()), None);
        let nowhere = Preloaded { offset: 0 };
        let program = std::env::current_exe().unwrap().display().to_string();
        let pid = std::process::id();
        assert_eq!(nowhere.block(pid, &program).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(nowhere.block(pid, "/etc/passwd").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
