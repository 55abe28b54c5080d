//! The sources of processes' samples, in words and in JSON.

use crate::connect::{self, Address};
use anyhow::Result;
use sampler_common::encode::json;
use sampler_common::source::{SampleSource, SampleSources};
use sampler_daemon::rpc::convert::sources::{from_wire, groups_from_wire};
use sampler_daemon::rpc::v1::{ProcessGroup, ProcessInterval};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of processes that are named for one set of sources. A larger number of processes
/// is only counted.
const MAX_NAMED_PROCESSES: usize = 8;

/// The sources of a process in JSON. A source that this program does not know is shown by its
/// number.
pub(crate) fn names(of: &ProcessInterval) -> Vec<String> {
    let name = |number: &i32| match from_wire(&[*number]) {
        Ok(known) => known.iter().map(SampleSource::name).collect(),
        Err(_) => number.to_string(),
    };
    of.sources.iter().map(name).collect()
}

/// The sources of a group of processes in JSON.
pub(crate) fn groups(address: &Address, of: &ProcessGroup) -> Result<Value> {
    let groups = connect::check(address, groups_from_wire(&of.sources))?;
    Ok(json!(json::sources(&groups)))
}

/// Lists processes by their sources, in words: `uprobes: 1 2; uprobes and preloaded: java 77`. Each
/// process comes with its name.
pub(crate) fn text<'a>(
    address: &Address,
    processes: impl Iterator<Item = (&'a ProcessInterval, String)>,
) -> Result<String> {
    let mut by_sources: BTreeMap<SampleSources, Vec<String>> = BTreeMap::new();
    for (of, name) in processes {
        let sources = connect::check(address, from_wire(&of.sources))?;
        by_sources.entry(sources).or_default().push(name);
    }
    let each = by_sources.iter().map(|(sources, names)| match names.len() {
        0..=MAX_NAMED_PROCESSES => format!("{sources}: {}", names.join(", ")),
        n => format!("{sources}: {n} processes"),
    });
    Ok(each.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_daemon::rpc::v1;

    fn interval(pid: u32, sources: &[v1::SampleSource]) -> ProcessInterval {
        let sources = sources.iter().map(|of| i32::from(*of)).collect();
        ProcessInterval { pid, sources, ..ProcessInterval::default() }
    }

    #[test]
    fn processes_are_grouped_by_all_their_sources() {
        use v1::SampleSource::{Preloaded, Uprobes};
        let address: Address = "unix:/nowhere".parse().unwrap();
        let mut all: Vec<ProcessInterval> =
            (0..MAX_NAMED_PROCESSES as u32 + 1).map(|pid| interval(pid, &[Uprobes])).collect();
        all.push(interval(77, &[Preloaded, Uprobes]));
        let named = |of: &[ProcessInterval]| {
            text(&address, of.iter().map(|of| (of, format!("x {}", of.pid)))).unwrap()
        };
        assert_eq!(named(&all), "uprobes: 9 processes; uprobes and preloaded: x 77");
        assert_eq!(named(&all[..2]), "uprobes: x 0, x 1");
        assert_eq!(names(&all[9]), ["preloaded", "uprobes"]);
        let unknown = ProcessInterval { sources: vec![99], ..interval(1, &[]) };
        assert_eq!(names(&unknown), ["99"]);
        assert!(text(&address, [(&unknown, String::new())].into_iter()).is_err());
    }
}
