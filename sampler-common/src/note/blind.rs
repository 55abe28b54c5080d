//! Why samplerd cannot see a part of a process.

use std::fmt::{self, Formatter};

/// Why samplerd cannot see a part of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// The file that the reason applies to; empty: the whole process.
    pub place: String,
    /// The reason.
    pub why: String,
}

impl Blind {
    /// Why samplerd cannot see a file's allocations.
    pub fn at(place: &str, why: impl Into<String>) -> Blind {
        Blind { place: place.to_owned(), why: why.into() }
    }
}

impl<T: Into<String>> From<T> for Blind {
    fn from(why: T) -> Blind {
        Blind::at("", why)
    }
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.why),
            place => write!(f, "{place}: {}", self.why),
        }
    }
}
