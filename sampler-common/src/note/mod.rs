//! What limits the meaning of numbers. A note is data, and [`Display`](fmt::Display) makes one
//! sentence of it.
//!
//! The code that finds a limit only names it. The sentence is made where a profile is shown or
//! sent.

mod blind_spot;
mod focus;
mod growth;
mod loss;
mod mapped;
mod memory;
mod names;
mod part;
mod processes;
mod reason;
mod unnamed_code;
mod windows;

pub use blind_spot::BlindSpot;
pub use focus::Focus;
pub use growth::Growth;
pub use loss::Loss;
pub use mapped::Mapped;
pub use memory::Memory;
pub use names::Names;
pub use part::Part;
pub use processes::Processes;
pub use reason::Reason;
pub use unnamed_code::{Runtime, UnnamedCode};
pub use windows::Windows;

use crate::cost::{self, Range};
use crate::units::human_cpu_time;
use serde::{Serialize, Serializer};
use std::fmt::{self, Formatter};

/// What limits the meaning of numbers, or explains them.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Something was lost or not seen.
    Loss(Loss),
    /// The numbers cover a part of what happened.
    Part(Part),
    /// The reader asked for some stacks only.
    Focus(Focus),
    /// The numbers are of mapped memory.
    Mapped(Mapped),
    /// The numbers are of growth.
    Growth(Growth),
    /// A statement about some processes.
    Processes(Processes),
    /// Number of omitted reasons why something is not seen.
    MoreReasons(usize),
    /// Allocations were seen in windows only.
    Windows(Windows),
    /// Memory of processes is compared with what they hold.
    Memory(Memory),
    /// Names are missing.
    Names(Names),
    /// Most of the cost is of frees: their CPU time, nanoseconds.
    Frees(Range),
    /// The sentence of a note that was read from a file or from the protocol.
    Text(String),
}

impl Note {
    /// The note of a loss, if its count is not 0.
    pub fn counted(count: u64, loss: fn(u64) -> Loss) -> Option<Note> {
        (count > 0).then(|| Note::Loss(loss(count)))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Note::Loss(of) => of.fmt(f),
            Note::Part(of) => of.fmt(f),
            Note::Focus(of) => of.fmt(f),
            Note::Mapped(of) => of.fmt(f),
            Note::Growth(of) => of.fmt(f),
            Note::Processes(of) => of.fmt(f),
            Note::MoreReasons(more) => {
                write!(f, "and {more} more reasons why something is not seen (see: sampler ps)")
            }
            Note::Windows(of) => of.fmt(f),
            Note::Memory(of) => of.fmt(f),
            Note::Names(of) => of.fmt(f),
            Note::Frees(spent) => {
                let (time, error) = (human_cpu_time(spent.value), cost::plus_minus(spent));
                write!(f, "{time}{error} of the cost is of frees (samplerd --no-live probes none)")
            }
            Note::Text(text) => f.write_str(text),
        }
    }
}

impl<T: Into<String>> From<T> for Note {
    fn from(text: T) -> Note {
        Note::Text(text.into())
    }
}

/// Serializes the sentence.
impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_frees_has_its_interval() {
        let note = Note::Frees(Range { value: 9e9, low: 8.1e9, high: 9.9e9 });
        let text = "9.00 s ±10% of the cost is of frees (samplerd --no-live probes none)";
        assert_eq!(note.to_string(), text);
        assert_eq!(serde_json::to_value(note).unwrap(), text);
    }
}
