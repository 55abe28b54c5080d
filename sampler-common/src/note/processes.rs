//! A statement about some processes, and which processes they are.

use super::Reason;
use std::fmt::{self, Formatter};

/// Maximum number of processes that are named; further ones are counted.
const MAX_NAMED_PROCESSES: usize = 3;

/// A statement about some processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    /// The statement.
    pub reason: Reason,
    /// Number of processes.
    pub count: u64,
    /// Pid and command name of some of the processes.
    pub examples: Vec<(u32, String)>,
    /// The file, if it is the same in all processes; else empty.
    pub place: String,
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Processes { reason, count, examples, place } = self;
        let named = |(pid, comm): &(u32, String)| match comm.as_str() {
            "" => pid.to_string(),
            comm => format!("{comm} {pid}"),
        };
        match (count, examples.first()) {
            (1, Some((pid, _))) => write!(f, "pid {pid}: ")?,
            _ => {
                let named: Vec<String> =
                    examples.iter().take(MAX_NAMED_PROCESSES).map(named).collect();
                let more = if *count > named.len() as u64 { ", …" } else { "" };
                write!(f, "{count} processes ({}{more}): ", named.join(", "))?;
            }
        }
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        reason.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_processes_are_named() {
        let text = |count: usize, place: &str| {
            let all = [(2, "py"), (3, "py"), (4, ""), (5, "py")];
            let examples = all.iter().take(count).map(|(pid, comm)| (*pid, (*comm).to_owned()));
            let (reason, place) = (Reason::BlindSpot("arenas".into()), place.to_owned());
            Processes { reason, count: count as u64, examples: examples.collect(), place }
                .to_string()
        };
        assert_eq!(text(1, ""), "pid 2: arenas");
        assert_eq!(text(2, "/l"), "2 processes (py 2, py 3): /l: arenas");
        assert_eq!(text(4, ""), "4 processes (py 2, py 3, 4, …): arenas");
    }
}
