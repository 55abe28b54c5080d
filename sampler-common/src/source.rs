//! The source of a process's samples.
//!
//! A process can have several sources: its allocators are probed one by one, and one of them may
//! sample by itself. A source stays one, since the numbers of the process contain its samples.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// A way in which allocations become samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SampleSource {
    /// Uprobes on the functions of an allocator.
    Uprobes,
    /// The in-process sampler, injected into the running process.
    Injected,
    /// The in-process sampler, loaded with the program.
    Preloaded,
    /// A foreign allocator that samples by itself and reports its samples by `otel_memory` probes.
    OtelMemory,
    /// Uprobes that are attached in short windows only.
    Windows,
}

impl SampleSource {
    /// Every source, in the order in which they are shown.
    pub const ALL: [SampleSource; 5] = [
        SampleSource::Uprobes,
        SampleSource::Injected,
        SampleSource::Preloaded,
        SampleSource::OtelMemory,
        SampleSource::Windows,
    ];

    /// `uprobes`, `injected`, `preloaded`, `otel_memory` or `windows`.
    pub const fn name(self) -> &'static str {
        match self {
            SampleSource::Uprobes => "uprobes",
            SampleSource::Injected => "injected",
            SampleSource::Preloaded => "preloaded",
            SampleSource::OtelMemory => "otel_memory",
            SampleSource::Windows => "windows",
        }
    }

    /// The source with this name.
    pub fn from_name(name: &str) -> Option<SampleSource> {
        SampleSource::ALL.into_iter().find(|of| of.name() == name)
    }
}

/// The sources of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleSources(u8);

impl SampleSources {
    /// No source: nothing of the process becomes a sample.
    pub const NONE: SampleSources = SampleSources(0);

    /// Adds a source.
    pub fn insert(&mut self, source: SampleSource) {
        self.0 |= 1 << source as u8;
    }

    /// Adds the sources of another process.
    pub fn extend(&mut self, other: SampleSources) {
        self.0 |= other.0;
    }

    /// Whether `source` is one of the sources.
    pub fn contains(self, source: SampleSource) -> bool {
        !self.only(source).is_empty()
    }

    /// Only `source`, if it is one of the sources.
    pub fn only(self, source: SampleSource) -> SampleSources {
        SampleSources(self.0 & 1 << source as u8)
    }

    /// Whether there is no source.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each source once, in the order of [`SampleSource::ALL`].
    pub fn iter(self) -> impl Iterator<Item = SampleSource> {
        SampleSource::ALL.into_iter().filter(move |of| self.contains(*of))
    }
}

impl FromIterator<SampleSource> for SampleSources {
    fn from_iter<I: IntoIterator<Item = SampleSource>>(each: I) -> SampleSources {
        let mut sources = SampleSources::NONE;
        each.into_iter().for_each(|source| sources.insert(source));
        sources
    }
}

/// `uprobes`; `uprobes and preloaded` for a process with both; `none`.
impl Display for SampleSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<&str> = self.iter().map(SampleSource::name).collect();
        f.write_str(&names.join(" and "))
    }
}

/// Processes that have the same sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceGroup {
    /// The sources that each of the processes has.
    pub sources: SampleSources,
    /// Number of processes.
    pub processes: u64,
}

impl SourceGroup {
    /// Groups processes by their sources, the largest group first. Each item stands for a number of
    /// processes.
    pub fn of(processes: impl IntoIterator<Item = (SampleSources, u64)>) -> Vec<SourceGroup> {
        let mut counts: BTreeMap<SampleSources, u64> = BTreeMap::new();
        for (sources, count) in processes {
            *counts.entry(sources).or_default() += count;
        }
        let group = |(sources, processes)| SourceGroup { sources, processes };
        let mut groups: Vec<SourceGroup> = counts.into_iter().map(group).collect();
        groups.sort_by_key(|of| std::cmp::Reverse(of.processes));
        groups
    }

    /// All groups in one line: `uprobes`, or
    /// `preloaded (3 processes), uprobes and preloaded (1 process)`.
    pub fn text(groups: &[SourceGroup]) -> String {
        if let [one] = groups {
            return one.sources.to_string();
        }
        let each = groups.iter().map(|SourceGroup { sources, processes }| {
            let noun = if *processes == 1 { "process" } else { "processes" };
            format!("{sources} ({processes} {noun})")
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_names_are_parsed_back() {
        for source in SampleSource::ALL {
            assert_eq!(SampleSource::from_name(source.name()), Some(source));
        }
        assert_eq!(SampleSource::from_name("uprobe"), None);
    }

    #[test]
    fn two_sources_are_printed_as_both() {
        let mut sources = SampleSources::NONE;
        assert_eq!(sources.to_string(), "none");
        sources.insert(SampleSource::Preloaded);
        sources.insert(SampleSource::Preloaded);
        assert_eq!(sources.to_string(), "preloaded");
        sources.extend([SampleSource::Uprobes].into_iter().collect());
        assert_eq!(sources.to_string(), "uprobes and preloaded");
        assert_eq!(sources.only(SampleSource::Uprobes).to_string(), "uprobes");
        assert!(sources.only(SampleSource::Injected).is_empty());
        assert_eq!(sources.iter().collect::<SampleSources>(), sources);
    }

    #[test]
    fn processes_are_grouped_by_all_their_sources() {
        let of = |sources: &[SampleSource]| sources.iter().copied().collect::<SampleSources>();
        let preloaded = of(&[SampleSource::Preloaded]);
        let both = of(&[SampleSource::Preloaded, SampleSource::Uprobes]);
        let groups = SourceGroup::of([(both, 1), (preloaded, 1), (preloaded, 2)]);
        let text = "preloaded (3 processes), uprobes and preloaded (1 process)";
        assert_eq!(SourceGroup::text(&groups), text);
        assert_eq!(SourceGroup::text(&SourceGroup::of([(both, 2)])), "uprobes and preloaded");
        assert_eq!(SourceGroup::of([]), []);
    }
}
