//! A profile: rows with their estimates, symbolized, ready for any output format.
//!
//! A profile is pure data. The daemon makes it, the protocol carries it, [`crate::encode`] writes
//! it.

mod allocator;
mod chosen;
mod frame;
mod functions;
mod merged;
mod runtime;
mod standard_library;
mod startup;

pub use allocator::interposed;
pub(crate) use allocator::{entry_pattern, is_entry};
pub use chosen::used;
pub use frame::{Frame, leaf_first, own_frame};
pub use functions::{Function, FunctionSum, Functions, functions, summed};

use crate::cost::Report;
use crate::estimate::{
    Confidence, Estimate, Estimator, Moments, Reference, Row, RowMoments, of_row,
};
use crate::note::Note;
use crate::sampling::Strategy;
use crate::source::SourceGroup;
use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::Range;

/// The question that a profile answers: it selects, orders and weights the stacks. Every kind has
/// all four quantities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What was allocated since attach.
    Alloc,
    /// What was allocated since attach and is still held.
    Live,
    /// What was held at the peak of live bytes since attach; each process has a peak of its own.
    Peak,
    /// What programs mapped themselves since attach (mmap, mremap, sbrk, not malloc's), and what of
    /// this is still mapped. Counted, not sampled.
    Mapped,
}

impl Kind {
    /// `alloc`, `live`, `peak` or `mapped`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Alloc => "alloc",
            Kind::Live => "live",
            Kind::Peak => "peak",
            Kind::Mapped => "mapped",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        [Kind::Alloc, Kind::Live, Kind::Peak, Kind::Mapped]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A number with the moments that it was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The estimate with its confidence interval.
    pub estimate: Estimate,
    /// The moments of the estimate: moments add over profiles, so sums keep their intervals.
    pub moments: Moments,
}

/// The four quantities, in pprof's order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantities {
    /// Objects allocated.
    pub alloc_objects: Quantity,
    /// Bytes allocated.
    pub alloc_space: Quantity,
    /// Objects held.
    pub inuse_objects: Quantity,
    /// Bytes held.
    pub inuse_space: Quantity,
}

impl Quantities {
    /// Estimates of all four quantities by [`of_row()`].
    pub fn of_row(
        row: &Row,
        reference: &Reference,
        estimator: Estimator,
        confidence: Confidence,
    ) -> Quantities {
        let estimates = of_row(row, reference, estimator, confidence);
        let RowMoments { alloc_objects, alloc_space, inuse_objects, inuse_space, .. } = row.total();
        let make = |estimate, moments| Quantity { estimate, moments };
        Quantities {
            alloc_objects: make(estimates.alloc_objects, alloc_objects),
            alloc_space: make(estimates.alloc_space, alloc_space),
            inuse_objects: make(estimates.inuse_objects, inuse_objects),
            inuse_space: make(estimates.inuse_space, inuse_space),
        }
    }

    /// The bytes of `kind`.
    pub fn space(&self, kind: Kind) -> &Quantity {
        match kind {
            Kind::Alloc => &self.alloc_space,
            Kind::Live | Kind::Peak | Kind::Mapped => &self.inuse_space,
        }
    }

    /// The objects of `kind`.
    pub fn objects(&self, kind: Kind) -> &Quantity {
        match kind {
            Kind::Alloc => &self.alloc_objects,
            Kind::Live | Kind::Peak | Kind::Mapped => &self.inuse_objects,
        }
    }
}

/// A span of time, nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start of the window, inclusive.
    pub start_unix_ns: u64,
    /// End of the window, exclusive.
    pub end_unix_ns: u64,
}

impl Window {
    /// Length of the window, nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }
}

/// Exact totals of the allocations of the queried processes, since attach or in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// Number of allocations.
    pub alloc_objects: u64,
    /// Requested bytes.
    pub alloc_space: u64,
}

impl Sum for Exact {
    fn sum<I: Iterator<Item = Exact>>(each: I) -> Exact {
        each.fold(Exact::default(), |sum, one| Exact {
            alloc_objects: sum.alloc_objects + one.alloc_objects,
            alloc_space: sum.alloc_space + one.alloc_space,
        })
    }
}

/// Samples that did not end as a symbolized stack. The totals contain them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Name of the [`crate::counters::Outcome`].
    pub outcome: String,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the samples, if their sizes are known.
    pub alloc_space: Option<Quantity>,
    /// Objects of the samples, if their sizes are known.
    pub alloc_objects: Option<Quantity>,
}

/// A mapped file (or the vdso, or anonymous code) that contains code of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Path in the process, or a name in brackets.
    pub path: String,
    /// GNU build id in lower-case hex; empty if the file has none.
    pub build_id: String,
    /// File offsets of the executable segment that contains the frames; `None`: not known. A file
    /// with several segments has a mapping for each.
    pub code: Option<Range<u64>>,
}

/// Prefix of the path of a mapping that stands for the Python code of a process.
const PYTHON: &str = "[python ";

/// A source line of a location.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// Demangled function name, or `path+0xoffset` if no symbol covers the address.
    pub function: String,
    /// Source file, empty if unknown.
    pub file: String,
    /// Line number, 0 if unknown.
    pub line: u32,
}

impl Line {
    /// A place in a file that has no name: `file+0xoffset`, with the last part of the path.
    pub fn place(path: &str, offset: u64) -> Line {
        let name = path.rsplit('/').next().unwrap_or(path);
        Line { function: format!("{name}+{offset:#x}"), ..Line::default() }
    }
}

/// A code location of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Index into [`Profile::mappings`].
    pub mapping: u32,
    /// File offset of the call in the mapped file (address for anonymous code).
    pub address: u64,
    /// Innermost inlined function first, the function that was not inlined last; at least one.
    pub lines: Vec<Line>,
}

/// Names of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessName {
    /// Command name, as `ps` shows it.
    pub comm: String,
    /// Path of the executable; empty if unknown.
    pub exe: String,
}

/// A row of the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Process that allocated; 0 if processes are merged.
    pub pid: u32,
    /// Indices into [`Profile::locations`], leaf (the allocating function) first.
    pub locations: Vec<u32>,
    /// Moments of the row by process and size class; sums of moments keep every estimator possible.
    pub row: Row,
    /// Numbers of the row, made from `row`.
    pub quantities: Quantities,
}

/// Name in place of an estimator's, for sums of points of a stride.
pub const POINTS: &str = "points";

/// A profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The question that the profile answers.
    pub kind: Kind,
    /// Confidence of every interval in the profile.
    pub confidence: Confidence,
    /// Time at which the profile was made, nanoseconds since the Unix epoch.
    pub time_unix_ns: u64,
    /// Length of the sampling, or of the window, nanoseconds.
    pub duration_ns: u64,
    /// The window, between borders of time slots; `None`: since attach. For a peak: from attach to
    /// the peak.
    pub window: Option<Window>,
    /// Mean bytes between samples, as in force when the profile was made.
    pub interval_bytes: u64,
    /// The estimator of the numbers. For a process sampled by stride the numbers are sums of
    /// points, without an interval.
    pub estimator: Estimator,
    /// Every strategy that the profile's processes were ever sampled with.
    pub strategies: Vec<Strategy>,
    /// Sources of the samples of the profile's processes.
    pub sources: Vec<SourceGroup>,
    /// Pid of each process that the strata of rows refer to.
    pub pids: Vec<u32>,
    /// Names of these processes by pid, if known.
    pub process_names: BTreeMap<u32, ProcessName>,
    /// Sums over every stack and lost stack, before any cut to the top stacks, and exact totals, by
    /// stratum.
    pub reference: Reference,
    /// Totals over every stack and over lost stacks, before any cut to the top stacks.
    pub totals: Quantities,
    /// Exact totals; `None` if size limits cut a size class in two.
    pub exact: Option<Exact>,
    /// Samples in the allocation totals.
    pub samples: u64,
    /// Lost samples by outcome.
    pub lost: Vec<Lost>,
    /// Mappings. The executable of the process with the largest stack comes first if it contains a
    /// frame.
    pub mappings: Vec<Mapping>,
    /// Locations.
    pub locations: Vec<Location>,
    /// Rows, by falling estimated bytes of `kind`.
    pub stacks: Vec<Stack>,
    /// Number of rows before the cut to the top rows.
    pub stacks_total: u64,
    /// Functions over every stack, before any cut to the top stacks, if they were asked for.
    /// `None`: `stacks` has the data to make them.
    pub functions: Option<Functions>,
    /// What limits the meaning of the numbers ("live bytes are a lower bound since …").
    pub notes: Vec<Note>,
    /// The cost of profiling to the processes since their attach, for any window; `None`: read from
    /// a file of an older version.
    pub cost: Option<Report>,
}

impl Profile {
    /// What the profile's bytes are. Held bytes in a window are of the window's own allocations
    /// only.
    pub fn what(&self) -> &'static str {
        match (self.kind, self.window) {
            (Kind::Alloc, _) => "allocated",
            (Kind::Live, Some(_)) => "held of the window's own allocations",
            (Kind::Live, None) => "held",
            (Kind::Peak, _) => "held at the peak",
            (Kind::Mapped, _) => "mapped",
        }
    }

    /// Whether the numbers are of a window only. The numbers of a peak are of all time since
    /// attach.
    pub fn is_windowed(&self) -> bool {
        self.window.is_some() && self.kind != Kind::Peak
    }

    /// The command name of a process, if it is known.
    pub fn comm(&self, pid: u32) -> Option<&str> {
        let name = self.process_names.get(&pid)?;
        Some(name.comm.as_str()).filter(|comm| !comm.is_empty())
    }

    /// `kvstore (pid 4121)`, or `pid 4121` if the command name is unknown.
    pub fn process_label(&self, pid: u32) -> String {
        match self.comm(pid) {
            Some(comm) => format!("{comm} (pid {pid})"),
            None => format!("pid {pid}"),
        }
    }

    /// The estimator's name, or `points` if a process was sampled by stride.
    pub fn estimator_name(&self) -> &'static str {
        if self.has_stride() { POINTS } else { self.estimator.name() }
    }

    /// Names of the strategies, comma separated.
    pub fn strategy_names(&self) -> String {
        self.strategies.iter().map(|of| of.name()).collect::<Vec<_>>().join(",")
    }

    /// Whether a process was sampled by stride, so that the numbers have no interval.
    pub fn has_stride(&self) -> bool {
        self.strategies.contains(&Strategy::Stride)
    }

    /// The estimates of a row of this profile, or of a sum of its rows.
    pub fn quantities_of(&self, row: &Row) -> Quantities {
        Quantities::of_row(row, &self.reference, self.estimator, self.confidence)
    }

    /// Whether a location is code of an interpreted language, or of a runtime that compiles it.
    /// Functions of such a language are identified by their files too.
    pub fn is_interpreted(&self, location: &Location) -> bool {
        let mapping = self.mappings.get(location.mapping as usize);
        mapping.is_some_and(|of| [PYTHON, "[jit "].iter().any(|kind| of.path.starts_with(kind)))
    }

    /// Frames of a stack as source lines, root first, leaf last, inlined frames included.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = &'a Line> {
        stack.locations.iter().rev().flat_map(|index| {
            // `lines` has the innermost function first, so it is read backwards from the root.
            self.locations[*index as usize].lines.iter().rev()
        })
    }
}
