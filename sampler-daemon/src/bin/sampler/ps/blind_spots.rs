//! What samplerd cannot see in processes: each reason once, with its processes.

use sampler_common::encode::name::shown;
use sampler_daemon::rpc::v1::Process;
use std::collections::BTreeMap;

/// Maximum number of processes that are named for one reason. Further processes are only counted.
const MAX_NAMED_PROCESSES: usize = 3;

/// Returns one line for each reason.
pub(crate) fn blind_spots<'a>(processes: impl Iterator<Item = &'a Process>) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<&Process>> = BTreeMap::new();
    for process in processes {
        for line in &process.blind_spots {
            reasons.entry(line).or_default().push(process);
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, whom)| std::cmp::Reverse(whom.len()));
    let line = |(why, whom): (&str, Vec<&Process>)| {
        let named = whom
            .iter()
            .take(MAX_NAMED_PROCESSES)
            .map(|of| format!("{} {}", shown(&of.comm), of.pid));
        let named: Vec<String> = named.collect();
        let more = if whom.len() > MAX_NAMED_PROCESSES { ", …" } else { "" };
        let whom = match whom.len() {
            1 => named.join(""),
            n => format!("{n} processes ({}{more})", named.join(", ")),
        };
        format!("{whom}: {}", shown(why))
    };
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_printed_once() {
        let process = |pid, blind_spots: &[&str]| Process {
            pid,
            comm: "cc1".into(),
            blind_spots: blind_spots.iter().map(|line| (*line).to_owned()).collect(),
            ..Process::default()
        };
        let many: Vec<Process> = (1..=5).map(|pid| process(pid, &["gone"])).collect();
        let few = [process(9, &["static", "gone"])];
        assert_eq!(
            blind_spots(many.iter().chain(&few)),
            ["6 processes (cc1 1, cc1 2, cc1 3, …): gone", "cc1 9: static"]
        );
        assert_eq!(blind_spots(few[..0].iter()), [""; 0]);
    }
}
