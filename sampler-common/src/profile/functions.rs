//! Functions, as a table of them shows: summed over every stack, whether the stacks themselves are told or not.

use super::{Line, Quantity};

/// The functions of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Functions {
    /// Those asked for: by falling own bytes, then by all bytes under them.
    pub rows: Vec<FunctionSum>,
    /// How many there are.
    pub total: u64,
    /// Pid of each process that has a stack, in rising order.
    pub pids: Vec<u32>,
}

/// A function, over all its stacks.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSum {
    /// Its name, with the file and line in which most is allocated.
    pub line: Line,
    /// Path of the mapped file that it lies in.
    pub module: String,
    /// Bytes of the profile's kind that it allocates itself, as estimated; `None` where it only calls.
    pub own: Option<f64>,
    /// Bytes of the profile's kind in it and under it, made from the summed rows of its stacks.
    pub total: Quantity,
}
