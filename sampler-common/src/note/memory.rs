//! Notes that compare the memory of processes with the memory that a profile says they hold.

use crate::estimate::ratio::Ratio;
use crate::estimate::{Estimate, plus_minus};
use crate::units::human_bytes;
use std::fmt::{self, Formatter};

/// Maximum number of processes that are named; further ones are counted.
const MAX_NAMED_PROCESSES: usize = 3;
/// Why memory can be in no block that is known to be held.
const WHY: &str = "of anonymous memory since the attach is in no block known to be held: an allocator that is not seen, \
     memory mapped past malloc (--kind mapped), stacks, or freed blocks that an allocator keeps";

/// Memory of processes, compared with what they hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Memory {
    /// Ratio of glibc's block sizes to requested sizes, and the number of further blocks without a
    /// plausible header.
    Usable(Ratio, u64),
    /// Memory of running processes as the kernel reports it.
    Resident {
        /// Bytes that the processes hold.
        held: Estimate,
        /// Number of processes.
        processes: usize,
        /// Heap mappings of the processes, bytes.
        heap_bytes: u64,
        /// Resident memory of the processes, bytes.
        rss_bytes: u64,
    },
    /// Processes with memory in no known block: pid, command name and bytes of each, the largest
    /// first.
    Unexplained(Vec<(u32, String, f64)>),
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Usable(Ratio { value, low, high, samples }, refused) => {
                let without = if *refused > 0 {
                    format!(", {refused} without a plausible header")
                } else {
                    String::new()
                };
                write!(
                    f,
                    "glibc's blocks are {value:.3} ({low:.3} … {high:.3}) times what was requested ({samples} looked at{without})"
                )
            }
            Memory::Resident { held, processes, heap_bytes, rss_bytes } => {
                let whose = if *processes > 1 {
                    format!(" of the {processes} processes that run")
                } else {
                    String::new()
                };
                let [heap, rss] = [heap_bytes, rss_bytes].map(|bytes| human_bytes(*bytes as f64));
                write!(
                    f,
                    "held {}{} beside {heap} of heap mappings{whose}, RSS {rss}",
                    human_bytes(held.value),
                    interval(held)
                )
            }
            Memory::Unexplained(processes) => unexplained(processes, f),
        }
    }
}

fn interval(held: &Estimate) -> String {
    match plus_minus(held) {
        _ if !held.has_interval() => " (no interval)".to_owned(),
        // If nothing is held, the interval has no form in percent.
        around if around.is_empty() => around,
        around => format!(" {around}"),
    }
}

fn unexplained(processes: &[(u32, String, f64)], f: &mut Formatter<'_>) -> fmt::Result {
    let total = human_bytes(processes.iter().map(|(_, _, bytes)| bytes).sum());
    if let [(pid, comm, _)] = processes {
        return write!(f, "pid {pid} ({comm}): {total} {WHY}");
    }
    let named = processes
        .iter()
        .take(MAX_NAMED_PROCESSES)
        .map(|(pid, comm, bytes)| format!("{comm} {pid}: {}", human_bytes(*bytes)));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if processes.len() > MAX_NAMED_PROCESSES { ", …" } else { "" };
    write!(f, "{} processes ({named}{more}): {total} {WHY}", processes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Confidence, Method};

    const MIB: f64 = 1024.0 * 1024.0;

    #[test]
    fn held_memory_is_noted_with_its_interval() {
        let held = Estimate {
            value: 100.0 * MIB,
            low: 96.0 * MIB,
            high: 104.0 * MIB,
            confidence: Confidence::DEFAULT,
            samples: 9,
            method: Method::Weighted,
        };
        let text = |processes| {
            Memory::Resident { held, processes, heap_bytes: 180 << 20, rss_bytes: 210 << 20 }
                .to_string()
        };
        assert_eq!(text(1), "held 100 MiB ±4% beside 180 MiB of heap mappings, RSS 210 MiB");
        assert!(text(3).contains("mappings of the 3 processes that run, RSS"));
    }

    #[test]
    fn a_few_processes_are_named_with_their_memory() {
        let text = |number: u32| {
            let all = (1..=number).rev().map(|pid| (pid, format!("p{pid}"), f64::from(pid) * MIB));
            Memory::Unexplained(all.collect()).to_string()
        };
        assert!(text(1).starts_with("pid 1 (p1): 1.00 MiB of anonymous memory"), "{}", text(1));
        let many = "4 processes (p4 4: 4.00 MiB, p3 3: 3.00 MiB, p2 2: 2.00 MiB, …): 10.0 MiB of";
        assert!(text(4).starts_with(many), "{}", text(4));
    }
}
