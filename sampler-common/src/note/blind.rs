//! Why something of a process is not seen.

use std::fmt::{self, Formatter};

/// Why something of a process is not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// The file that it holds for; empty: all of the process.
    pub place: String,
    /// Why.
    pub why: String,
}

impl Blind {
    /// Why something of a file is not seen.
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
