//! Words of a process's memory that count its work: requests served, statements run, versions of a dictionary. Most programs keep some, and nobody has to be slowed down to read them
//! ([`sampler_common::duty::Tally`]).
//!
//! Which words these are is found by looking: a counter is more each time, and by as much for the same CPU time. Whether it has to do with allocations windows have to show.

mod memory;
mod search;
mod steady;

pub use memory::{Memory, Unread};
pub use search::{Search, Step};

/// A word that counts, of 32 bits: of a longer one the lower half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its address.
    pub at: u64,
    /// Where that is: `libpython3.11.so.1.0+0x5777d8`, `heap`.
    pub name: String,
}
