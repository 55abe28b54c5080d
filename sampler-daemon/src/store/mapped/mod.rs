//! Memory that programs map themselves: which call mapped it, and how much is still mapped. The
//! numbers are exact: every call is seen.
//!
//! A *piece* is the memory that one call mapped. The growth by an `mremap` or by the break is a
//! piece of its own. The growth by `mremap` has the stack of the piece that grew. Bytes are whole
//! pages. The range that `mremap` moves is removed when the call begins, and kept aside until the
//! call ends.
//!
//! Bounds: at [`MAX_RANGES`], further pieces are counted as mapped and not as held
//! ([`Mapped::incomplete`]). If more than [`MAX_THREADS`] threads of a process have ranges aside,
//! the ranges aside count as unmapped.

mod ranges;
mod space;
#[cfg(test)]
mod tests;

pub use ranges::{Part, PieceId, Ranges};
pub use space::Remap;

use super::{Moves, ProcessId, RowKey, Rows, SizeCell, StackId, Windows};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{RowMoments, Sample};
use sampler_common::sampling::Rate;
use sampler_common::share::Holder;
use space::Space;

/// Maximum number of ranges, over all processes: about 16 MiB.
pub const MAX_RANGES: usize = 128 * 1024;
/// Maximum number of threads of a process that may be within `mremap`.
pub const MAX_THREADS: usize = 1024;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The caller of a mapping call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program itself (or its thread library or loader). Profiles of kind mapped show these
    /// calls.
    Direct,
    /// An allocator, for memory that `malloc` hands out.
    Allocator,
    /// The program or an allocator: too little of the stack is known.
    Unknown,
}

/// The memory that one call mapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// The calling process.
    pub process: ProcessId,
    /// Id of the user of the process.
    pub user: u32,
    /// Stack of the call.
    pub stack: StackId,
    /// Caller of the call.
    pub origin: Origin,
    /// Bytes.
    pub size: u64,
    /// Bytes that are still mapped.
    pub held: u64,
    /// `CLOCK_MONOTONIC` of the call, nanoseconds.
    pub time_ns: u64,
}

/// Bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Bytes.
    pub bytes: u64,
    /// Calls.
    pub calls: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64, calls: u64) {
        *self = Sum { bytes: self.bytes + bytes, calls: self.calls + calls };
    }
}

/// Memory that a process has mapped through one kind of caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Mapped since the attach.
    pub mapped: Sum,
    /// Still mapped.
    pub held: Sum,
}

/// Memory that a process has mapped, by caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTotals {
    /// By the program's own calls.
    pub directly: Totals,
    /// By calls of its allocators.
    pub by_allocators: Totals,
    /// By calls whose caller is unknown.
    pub by_unknown: Totals,
}

impl Piece {
    /// The moments that the piece adds to a row: the whole piece as allocated (`None`), or `held`
    /// bytes as live. The moments have no variance. If the piece may be an allocator's, its certain
    /// part (`own`) is 0.
    pub fn moments(&self, held: Option<u64>) -> RowMoments {
        let mut moments = RowMoments::default();
        match held {
            None => moments.add_allocation(&certain(self.size)),
            Some(held) => moments.add_live(&certain(held)),
        }
        if self.origin == Origin::Unknown {
            let RowMoments { alloc_space, alloc_objects, inuse_space, inuse_objects, .. } =
                &mut moments;
            for of in [alloc_space, alloc_objects, inuse_space, inuse_objects] {
                of.own = 0.0;
            }
        }
        moments
    }
}

/// A sample with probability 1.
fn certain(bytes: u64) -> Sample {
    Sample::geometric(bytes, Rate::ALWAYS)
}

/// Rounds `bytes` up to whole pages.
pub fn whole_pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX - PAGE + 1)
}

/// The mappings of all processes.
pub struct Mapped {
    spaces: FxHashMap<ProcessId, Space>,
    pieces: FxHashMap<PieceId, Piece>,
    next: u64,
    ranges: usize,
    bound: usize,
    allocators: FxHashMap<ProcessId, Sum>,
    /// Memory mapped since the attach, by stack.
    pub rows: Rows,
    /// Memory mapped, by time.
    pub windows: Windows,
    /// Number of pieces, or of remaining ends of pieces, that found no room.
    pub unheld: u64,
    /// Number of moves of which only the beginning was seen.
    pub unpaired: u64,
    /// Number of rows that found no room.
    pub rowless: u64,
}

impl Mapped {
    /// No mappings yet; time slots begin at `now_ns`.
    pub fn new(now_ns: u64) -> Mapped {
        Mapped {
            spaces: FxHashMap::default(),
            pieces: FxHashMap::default(),
            next: 0,
            ranges: 0,
            bound: MAX_RANGES,
            allocators: FxHashMap::default(),
            rows: Rows::default(),
            windows: Windows::new(now_ns),
            unheld: 0,
            unpaired: 0,
            rowless: 0,
        }
    }

    /// Whether the held numbers are a lower bound.
    pub fn incomplete(&self) -> bool {
        self.unheld > 0
    }

    /// Counts a new piece as mapped; the piece is not held yet.
    fn count(&mut self, piece: Piece) -> PieceId {
        match piece.origin {
            Origin::Direct | Origin::Unknown => {
                let Piece { process, user, stack, size, time_ns, .. } = piece;
                let (cell, moments) = (SizeCell::of(size), piece.moments(None));
                let holder = Holder { user, process };
                if !self.rows.add_moments(holder, stack, cell, &moments) {
                    self.rowless += 1;
                }
                let key = RowKey { process, stack, cell };
                self.windows.add_moments(key, moments, time_ns);
            }
            Origin::Allocator => {
                self.allocators.entry(piece.process).or_default().add(piece.size, 1);
            }
        }
        self.next += 1;
        let id = PieceId(self.next);
        self.pieces.insert(id, Piece { held: 0, ..piece });
        id
    }

    /// Stacks of all pieces and rows; a stack may be repeated.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        let pieces = self.pieces.values().map(|piece| (piece.process, piece.stack));
        pieces.chain(self.rows.stacks()).chain(self.windows.stacks())
    }

    /// Moves the mappings of folded processes to their folded records. Nothing of these mappings is
    /// held any more.
    pub fn fold(&mut self, moves: &Moves, holder_of: impl Fn(ProcessId) -> Holder<ProcessId>) {
        self.rows.fold(moves, holder_of);
        self.windows.fold(moves);
        let sums = self.allocators.extract_if(|process, _| moves.get(*process).is_some());
        for (process, sum) in sums.collect::<Vec<_>>() {
            let process = moves.get(process).unwrap_or(process);
            self.allocators.entry(process).or_default().add(sum.bytes, sum.calls);
        }
    }

    /// All pieces that are held at least partly.
    pub fn held(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.values().filter(|piece| piece.held > 0)
    }

    /// Mapped memory of each process, by caller.
    pub fn totals(&self) -> FxHashMap<ProcessId, ProcessTotals> {
        let mut totals: FxHashMap<ProcessId, ProcessTotals> = FxHashMap::default();
        for (process, sum) in &self.allocators {
            totals.entry(*process).or_default().by_allocators.mapped = *sum;
        }
        for (key, row) in self.rows.iter() {
            let process = totals.entry(key.process).or_default();
            let [bytes, calls] = [&row.alloc_space, &row.alloc_objects];
            process.directly.mapped.add(bytes.own as u64, calls.own as u64);
            let unknown = [bytes, calls].map(|of| (of.sum - of.own) as u64);
            process.by_unknown.mapped.add(unknown[0], unknown[1]);
        }
        for piece in self.held() {
            let process = totals.entry(piece.process).or_default();
            let of = match piece.origin {
                Origin::Direct => &mut process.directly,
                Origin::Allocator => &mut process.by_allocators,
                Origin::Unknown => &mut process.by_unknown,
            };
            of.held.add(piece.held, 1);
        }
        totals
    }

    /// Number of ranges, and its maximum.
    pub fn len(&self) -> (usize, usize) {
        (self.ranges, self.bound)
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.ranges == 0
    }
}
