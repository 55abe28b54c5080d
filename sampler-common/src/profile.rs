//! A profile as people ask for it: rows with their estimates, symbolized, ready for any format.
//!
//! Pure data. The daemon makes it, the protocol carries it, [`crate::encode`] writes it.

use crate::estimate::{Confidence, Estimate, Moments, RowMoments};

/// Which question a profile answers; it selects, orders and weighs the stacks. All four quantities are in either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What was allocated since attach.
    Alloc,
    /// What of it is still held.
    Live,
}

impl Kind {
    /// `alloc` or `live`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Alloc => "alloc",
            Kind::Live => "live",
        }
    }
}

/// A number with the moments that it was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The estimate with its interval.
    pub estimate: Estimate,
    /// Its moments: sums of these over profiles keep their intervals.
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
    /// Estimates of all four; `interval_bytes` as in [`crate::estimate::weighted()`].
    pub fn weighted(row: &RowMoments, interval_bytes: f64, confidence: Confidence) -> Quantities {
        let make = |moments: Moments| Quantity {
            estimate: crate::estimate::weighted(&moments, interval_bytes, confidence),
            moments,
        };
        Quantities {
            alloc_objects: make(row.alloc_objects),
            alloc_space: make(row.alloc_space),
            inuse_objects: make(row.inuse_objects),
            inuse_space: make(row.inuse_space),
        }
    }

    /// The bytes that `kind` asks for.
    pub fn space(&self, kind: Kind) -> &Quantity {
        match kind {
            Kind::Alloc => &self.alloc_space,
            Kind::Live => &self.inuse_space,
        }
    }

    /// The objects that `kind` asks for.
    pub fn objects(&self, kind: Kind) -> &Quantity {
        match kind {
            Kind::Alloc => &self.alloc_objects,
            Kind::Live => &self.inuse_objects,
        }
    }
}

/// Exact totals of allocations that happened since attach, of the queried processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exact {
    /// Allocations.
    pub alloc_objects: u64,
    /// Requested bytes.
    pub alloc_space: u64,
}

/// Samples that ended other than as a symbolized stack; they are part of the totals.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Name of the [`crate::counters::Outcome`].
    pub outcome: String,
    /// How many.
    pub samples: u64,
    /// Their bytes, where their sizes are known.
    pub alloc_space: Option<Quantity>,
    /// Their objects, where their sizes are known.
    pub alloc_objects: Option<Quantity>,
}

/// A mapped file (or the vdso, or anonymous code) that frames lie in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Path in the process, or a name in brackets.
    pub path: String,
    /// GNU build id in lower-case hex, empty if it has none.
    pub build_id: String,
}

/// A source line of a location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Demangled function name, or `path+0xoffset` where no symbol covers it.
    pub function: String,
    /// Source file, empty if unknown.
    pub file: String,
    /// Line, 0 if unknown.
    pub line: u32,
}

/// A code location of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Index into [`Profile::mappings`].
    pub mapping: u32,
    /// File offset of the call in the mapped file (address for anonymous code).
    pub address: u64,
    /// Innermost inlined function first, the function that really is there last; at least one.
    pub lines: Vec<Line>,
}

/// A row of the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Process that allocated, 0 where processes are merged.
    pub pid: u32,
    /// Indices into [`Profile::locations`], leaf (the allocating function) first.
    pub locations: Vec<u32>,
    /// Its numbers.
    pub quantities: Quantities,
}

/// A profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Which question it answers.
    pub kind: Kind,
    /// Confidence of every interval in it.
    pub confidence: Confidence,
    /// When it was made, nanoseconds since the Unix epoch.
    pub time_unix_ns: u64,
    /// How long sampling had gone on, nanoseconds.
    pub duration_ns: u64,
    /// Mean bytes between samples in force when it was made.
    pub interval_bytes: u64,
    /// Totals over every stack and over lost stacks, before any cut to the top stacks.
    pub totals: Quantities,
    /// Exact totals.
    pub exact: Exact,
    /// Samples in the allocation totals.
    pub samples: u64,
    /// What was lost on the way.
    pub lost: Vec<Lost>,
    /// Mappings.
    pub mappings: Vec<Mapping>,
    /// Locations.
    pub locations: Vec<Location>,
    /// Rows, by falling estimated bytes of `kind`.
    pub stacks: Vec<Stack>,
    /// How many rows there were before the cut to the top ones.
    pub stacks_total: u64,
    /// Whatever limits what the numbers mean ("live bytes are a lower bound since …").
    pub notes: Vec<String>,
}

impl Profile {
    /// Frames of a stack as plain strings, root first, leaf last, inlined ones included.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = &'a Line> {
        stack.locations.iter().rev().flat_map(|index| {
            // `lines` has the innermost first; from the root it is read backwards.
            self.locations[*index as usize].lines.iter().rev()
        })
    }
}
