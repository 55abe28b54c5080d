//! What processes have read and written.

use super::processor;
use std::fs;

/// Bytes that the process that has `pid` and has started at `start_ticks` has read and written by system calls, all of its threads, those that have ended included
/// (`Documentation/filesystems/proc.rst`, `/proc/PID/io`); `None` if it is gone, or nobody counts.
pub fn bytes(pid: u32, start_ticks: u64) -> Option<u64> {
    let bytes = parse(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)?;
    // Looked at afterwards: so it was its own.
    processor::processor_ns(pid, start_ticks).map(|_| bytes)
}

fn parse(io: &str) -> Option<u64> {
    let field = |name: &str| {
        io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some(field("rchar:")?.wrapping_add(field("wchar:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_and_written_is_added() {
        let io = "rchar: 6976\nwchar: 24\nsyscr: 10\nsyscw: 1\nread_bytes: 4096\n";
        assert_eq!(parse(io), Some(7000));
        assert_eq!(parse("rchar: 6976\n"), None);
    }
}
