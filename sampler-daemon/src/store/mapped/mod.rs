//! Memory that programs map themselves: who mapped what, and what of it is still mapped. Exact: every call is seen.
//!
//! A *piece* is what one call mapped: the growth of an `mremap` and of the break are pieces of their own, the former with the
//! stack of what grew. Bytes are whole pages. What `mremap` moves is taken out when it begins and kept aside until it ends.
//!
//! Bounds: [`MAX_RANGES`]; at it further pieces are counted as mapped and not as held ([`Mapped::incomplete`]). Ranges kept aside
//! by more than [`MAX_THREADS`] threads of a process are taken for gone.

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
use space::Space;

/// Ranges held at most, over all processes: about 16 MiB.
pub const MAX_RANGES: usize = 128 * 1024;
/// Threads of a process that may be within `mremap`.
pub const MAX_THREADS: usize = 1024;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Whose call it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program's own (or its thread library's, its loader's): what a profile of kind mapped is of.
    Direct,
    /// An allocator's, for what `malloc` hands out.
    Allocator,
    /// Either's: too little of the stack is known.
    Unknown,
}

/// What one call mapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// By which process.
    pub process: ProcessId,
    /// Where.
    pub stack: StackId,
    /// On whose behalf.
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

/// What a process has mapped by one kind of caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Since attach.
    pub mapped: Sum,
    /// Still.
    pub held: Sum,
}

/// What a process has mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTotals {
    /// By calls of its own.
    pub directly: Totals,
    /// By its allocators' calls.
    pub by_allocators: Totals,
    /// By calls of which it is not known whose they were.
    pub by_unknown: Totals,
}

impl Piece {
    /// What it adds to a row: itself as it was allocated, and `held` bytes of it where any are held. Nothing is left to chance; of what may be an
    /// allocator's nothing certainly exists.
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

/// A sample that is certain: one of everything.
fn certain(bytes: u64) -> Sample {
    Sample::geometric(bytes, Rate::ALWAYS)
}

/// `bytes` in whole pages.
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
    /// What was mapped since attach, by stack.
    pub rows: Rows,
    /// The same by time.
    pub windows: Windows,
    /// Pieces, or ends of them, that found no room.
    pub unheld: u64,
    /// Moves of which only the beginning was seen.
    pub unpaired: u64,
    /// Rows that found no room.
    pub rowless: u64,
}

impl Mapped {
    /// Nothing yet; time slots begin at `now_ns`.
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

    /// Whether what is held is a lower bound.
    pub fn incomplete(&self) -> bool {
        self.unheld > 0
    }

    /// Counts what a call has mapped; the piece is not held yet.
    fn count(&mut self, piece: Piece) -> PieceId {
        match piece.origin {
            Origin::Direct | Origin::Unknown => {
                let Piece { process, stack, size, time_ns, .. } = piece;
                let (key, moments) =
                    (RowKey { process, stack, cell: SizeCell::of(size) }, piece.moments(None));
                if !self.rows.add_moments(key, &moments) {
                    self.rowless += 1;
                }
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

    /// Stacks of everything that was mapped, each perhaps several times.
    pub fn stacks(&self) -> impl Iterator<Item = (ProcessId, StackId)> {
        let pieces = self.pieces.values().map(|piece| (piece.process, piece.stack));
        pieces.chain(self.rows.stacks()).chain(self.windows.stacks())
    }

    /// What processes that were folded have mapped is the others' from now on; nothing of it is held any more.
    pub fn fold(&mut self, moves: &Moves) {
        self.rows.fold(moves);
        self.windows.fold(moves);
        let sums = self.allocators.extract_if(|process, _| moves.get(*process).is_some());
        for (process, sum) in sums.collect::<Vec<_>>() {
            let process = moves.get(process).unwrap_or(process);
            self.allocators.entry(process).or_default().add(sum.bytes, sum.calls);
        }
    }

    /// All pieces of which something is held.
    pub fn held(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.values().filter(|piece| piece.held > 0)
    }

    /// What each process has mapped, itself and by its allocators.
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

    /// Ranges held, and the most that are.
    pub fn len(&self) -> (usize, usize) {
        (self.ranges, self.bound)
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.ranges == 0
    }
}
