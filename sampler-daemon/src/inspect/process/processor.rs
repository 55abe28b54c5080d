//! CPU time that processes have used.

use std::fs;

/// Nanoseconds of a clock tick in `/proc`. `USER_HZ` is 100 on x86-64, whatever the kernel's own
/// tick is.
const TICK_NS: u64 = 10_000_000;

/// Largest error of the difference of two values of [`processor_ns`]. User and system time are each
/// rounded down.
pub const RESOLUTION_NS: u64 = 2 * TICK_NS;

/// User and system time of all threads of the process that has `pid` and started at `start_ticks`,
/// in nanoseconds; `None` if the process is gone. The sum is the scheduler's exact time, not a
/// count of ticks.
pub fn processor_ns(pid: u32, start_ticks: u64) -> Option<u64> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, start_ticks)
}

fn parse(stat: &str, start_ticks: u64) -> Option<u64> {
    // The command name is in parentheses, and may contain parentheses.
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    (number(19)? == start_ticks).then_some(())?;
    Some((number(11)? + number(12)?) * TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 9 9 20 0 1 0 4711 1 2 3";
        assert_eq!(parse(stat, 4711), Some(3_000_000_000));
        assert_eq!(parse(stat, 4712), None, "the pid is somebody else's by now");
        assert_eq!(parse("7 (a) S 1", 4711), None);
    }
}
