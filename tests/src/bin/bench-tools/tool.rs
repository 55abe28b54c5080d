//! The profilers under which a workload runs.

use crate::scratch::Variable;
use anyhow::{Context, Result};
use std::path::Path;

/// A profiler with its options, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Nothing.
    None,
    /// Nothing, once more: shows the ratios of equal runs.
    Again,
    /// Empty programs at the instructions that samplerd probes.
    Empty,
    /// samplerd.
    Ours(Ours),
    /// memleak of bcc.
    Memleak,
    /// bpftrace: sums by stack at malloc, and a count of free.
    Bpftrace,
    /// The preloaded recorder of heaptrack.
    Heaptrack,
    /// gperftools' allocator, not profiling.
    Tcmalloc,
    /// gperftools' allocator, sampling.
    TcmallocSampling,
    /// gperftools' allocator, with its heap profiler.
    TcmallocProfiler,
    /// jemalloc, not profiling.
    Jemalloc,
    /// jemalloc, sampling.
    JemallocSampling,
}

/// A mode of samplerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ours {
    /// The default mode: 512 KiB.
    Default,
    /// No probe on free.
    NoLive,
    /// A smaller interval: 64 KiB.
    Interval64KiB,
    /// A larger interval: 4 MiB.
    Interval4MiB,
    /// The library inside the program instead of probes: 512 KiB.
    Preload,
}

impl Ours {
    /// Options of the mode.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Ours::Default => &[],
            Ours::NoLive => &["--no-live"],
            Ours::Interval64KiB => &["--interval", "64KiB"],
            Ours::Interval4MiB => &["--interval", "4MiB"],
            Ours::Preload => &["--samplers-only"],
        }
    }
}

impl Tool {
    /// All tools, in the order of the tables.
    pub(crate) const ALL: [Tool; 16] = [
        Tool::None,
        Tool::Again,
        Tool::Empty,
        Tool::Ours(Ours::Default),
        Tool::Ours(Ours::NoLive),
        Tool::Ours(Ours::Interval64KiB),
        Tool::Ours(Ours::Interval4MiB),
        Tool::Ours(Ours::Preload),
        Tool::Memleak,
        Tool::Bpftrace,
        Tool::Heaptrack,
        Tool::Tcmalloc,
        Tool::TcmallocSampling,
        Tool::TcmallocProfiler,
        Tool::Jemalloc,
        Tool::JemallocSampling,
    ];

    /// Name on the command line and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::None => "none",
            Tool::Again => "again",
            Tool::Empty => "empty",
            Tool::Ours(Ours::Default) => "ours",
            Tool::Ours(Ours::NoLive) => "ours-no-live",
            Tool::Ours(Ours::Interval64KiB) => "ours-64k",
            Tool::Ours(Ours::Interval4MiB) => "ours-4m",
            Tool::Ours(Ours::Preload) => "ours-preload",
            Tool::Memleak => "memleak",
            Tool::Bpftrace => "bpftrace",
            Tool::Heaptrack => "heaptrack",
            Tool::Tcmalloc => "tcmalloc",
            Tool::TcmallocSampling => "tcmalloc-sampling",
            Tool::TcmallocProfiler => "tcmalloc-profiler",
            Tool::Jemalloc => "jemalloc",
            Tool::JemallocSampling => "jemalloc-sampling",
        }
    }

    /// Name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Tool::None => "no profiler",
            Tool::Again => "no profiler, again",
            Tool::Empty => "empty uprobe programs",
            Tool::Ours(Ours::Default) => "samplerd (512 KiB)",
            Tool::Ours(Ours::NoLive) => "samplerd --no-live",
            Tool::Ours(Ours::Interval64KiB) => "samplerd --interval 64KiB",
            Tool::Ours(Ours::Interval4MiB) => "samplerd --interval 4MiB",
            Tool::Ours(Ours::Preload) => "preloaded (512 KiB)",
            Tool::Memleak => "memleak (bcc)",
            Tool::Bpftrace => "bpftrace one-liner",
            Tool::Heaptrack => "heaptrack",
            Tool::Tcmalloc => "tcmalloc, no profiler",
            Tool::TcmallocSampling => "tcmalloc sampling",
            Tool::TcmallocProfiler => "gperftools heap profiler",
            Tool::Jemalloc => "jemalloc, no profiler",
            Tool::JemallocSampling => "jemalloc sampling",
        }
    }

    /// The tool with this name.
    ///
    /// # Errors
    /// If there is no such tool.
    pub(crate) fn named(name: &str) -> Result<Tool> {
        let names = Tool::ALL.map(Tool::name).join(", ");
        let found = Tool::ALL.into_iter().find(|of| of.name() == name);
        found.with_context(|| format!("no tool {name:?} (there are {names})"))
    }

    /// The tool that the slowdown is relative to. A profiler that brings its allocator is compared
    /// with that allocator.
    pub(crate) fn baseline(self) -> Tool {
        match self {
            Tool::TcmallocSampling | Tool::TcmallocProfiler => Tool::Tcmalloc,
            Tool::JemallocSampling => Tool::Jemalloc,
            _ => Tool::None,
        }
    }

    /// The environment that a program needs under the tool. `directory` is the place for files.
    pub(crate) fn environment(self, directory: &Path) -> Vec<Variable> {
        let preload = |library: &str| ("LD_PRELOAD", library.to_owned());
        let path = |name: &str| directory.join(name).display().to_string();
        match self {
            // The toolbox has reported a library that is not built.
            Tool::Ours(Ours::Preload) => sampler_tests::preload::library().map_or_else(
                |_| Vec::new(),
                |library| {
                    let interval = ("SAMPLER_INTERVAL", "512KiB".to_owned());
                    vec![preload(&library.display().to_string()), interval]
                },
            ),
            Tool::None | Tool::Again | Tool::Empty | Tool::Ours(_) => Vec::new(),
            Tool::Memleak | Tool::Bpftrace => Vec::new(),
            Tool::Heaptrack => {
                vec![preload(HEAPTRACK), ("DUMP_HEAPTRACK_OUTPUT", path("heaptrack"))]
            }
            Tool::Tcmalloc => vec![preload(TCMALLOC)],
            Tool::TcmallocSampling => {
                vec![preload(TCMALLOC), ("TCMALLOC_SAMPLE_PARAMETER", "524288".to_owned())]
            }
            Tool::TcmallocProfiler => vec![preload(TCMALLOC), ("HEAPPROFILE", path("gperftools"))],
            Tool::Jemalloc => vec![preload(JEMALLOC)],
            Tool::JemallocSampling => vec![
                preload(JEMALLOC),
                ("MALLOC_CONF", "prof:true,prof_active:true,lg_prof_sample:19".to_owned()),
            ],
        }
    }

    /// Whether the tool puts probes into the program.
    pub(crate) fn probes(self) -> bool {
        match self {
            Tool::Ours(mode) => mode != Ours::Preload,
            _ => matches!(self, Tool::Empty | Tool::Memleak | Tool::Bpftrace),
        }
    }

    /// Files that the tool needs.
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            Tool::None | Tool::Again | Tool::Empty | Tool::Ours(_) => &[],
            Tool::Memleak => &["/usr/sbin/memleak-bpfcc", "/usr/bin/python3"],
            Tool::Bpftrace => &["/usr/bin/bpftrace"],
            Tool::Heaptrack => &[HEAPTRACK, HEAPTRACK_INTERPRET],
            Tool::Tcmalloc | Tool::TcmallocSampling | Tool::TcmallocProfiler => &[TCMALLOC],
            Tool::Jemalloc | Tool::JemallocSampling => &[JEMALLOC],
        }
    }
}

const HEAPTRACK: &str = "/usr/lib/heaptrack/libheaptrack_preload.so";
/// The program that reads the recorder's pipe.
pub(crate) const HEAPTRACK_INTERPRET: &str = "/usr/lib/heaptrack/libexec/heaptrack_interpret";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
