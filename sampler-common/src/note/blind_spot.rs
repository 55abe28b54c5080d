//! Why samplerd cannot see a part of a process.

use std::fmt::{self, Formatter};

/// Why samplerd cannot see a part of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlindSpot {
    /// The file that the reason applies to; empty: the whole process.
    pub place: String,
    /// The reason.
    pub why: String,
}

impl BlindSpot {
    /// Why samplerd cannot see a file's allocations.
    pub fn at(place: &str, why: impl Into<String>) -> BlindSpot {
        BlindSpot { place: place.to_owned(), why: why.into() }
    }
}

impl<T: Into<String>> From<T> for BlindSpot {
    fn from(why: T) -> BlindSpot {
        BlindSpot::at("", why)
    }
}

impl fmt::Display for BlindSpot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.why),
            place => write!(f, "{place}: {}", self.why),
        }
    }
}
