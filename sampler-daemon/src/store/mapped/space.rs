//! The effect of mapping calls on the address space of one process.

use super::ranges::{Part, Ranges};
use super::{MAX_THREADS, Mapped, Piece, PieceId, whole_pages};
use crate::store::ProcessId;
use rustc_hash::FxHashMap;

/// One address space.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// The program image of the ranges.
    generation: u32,
    ranges: Ranges,
    /// The parts that each thread's `mremap` has removed. The end of the call says where they are
    /// now.
    aside: FxHashMap<u32, Vec<Part>>,
}

/// Flag of `mremap`: the old range stays mapped, without its pages.
const MREMAP_DONTUNMAP: u64 = 4;

/// The arguments of an `mremap` call.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// Old first address.
    pub old: u64,
    /// Old length, bytes.
    pub old_length: u64,
    /// New length, bytes.
    pub length: u64,
    /// Flags of the call.
    pub flags: u64,
}

impl Mapped {
    /// Sets the program image of the next call. Returns false if the image is older than the known
    /// one: its ranges are gone. A newer image ends all ranges of older ones.
    pub fn of_image(&mut self, process: ProcessId, generation: u32) -> bool {
        let known = self.spaces.entry(process).or_default();
        if generation > known.generation {
            let old = std::mem::replace(known, Space { generation, ..Space::default() });
            self.end_space(old);
            return true;
        }
        generation == known.generation
    }

    /// Removes a process that has ended.
    pub fn end(&mut self, process: ProcessId) {
        if let Some(space) = self.spaces.remove(&process) {
            self.end_space(space);
        }
    }

    fn end_space(&mut self, space: Space) {
        self.ranges -= space.ranges.len();
        let aside = space.aside.values().flatten().copied();
        for part in space.ranges.iter().chain(aside).collect::<Vec<_>>() {
            self.pieces.remove(&part.piece);
        }
    }

    /// Maps `length` bytes at `start`, in place of existing ranges. `by` is the new piece; `None`:
    /// the new mapping is not followed.
    pub fn map(
        &mut self,
        process: ProcessId,
        tid: u32,
        start: u64,
        length: u64,
        by: Option<Piece>,
    ) {
        self.drop_aside(process, tid);
        let end = start.saturating_add(whole_pages(length));
        self.drop_range(process, start, end);
        if let Some(piece) = by {
            let id = self.count(Piece { process, size: end - start, ..piece });
            self.hold(process, Part { start, end, piece: id });
            self.forget_unheld(id);
        }
    }

    /// `munmap` begins: its range is removed.
    pub fn unmap(&mut self, process: ProcessId, tid: u32, start: u64, length: u64) {
        self.drop_aside(process, tid);
        self.drop_range(process, start, start.saturating_add(whole_pages(length)));
    }

    /// `mremap` begins: its old range is kept aside.
    pub fn remap_begins(&mut self, process: ProcessId, tid: u32, of: Remap) {
        self.set_aside(process, tid, of.old, of.old_length);
    }

    /// `mremap` has returned. `new` is the new address of the range, `None` if the call failed.
    pub fn remap_ends(
        &mut self,
        process: ProcessId,
        tid: u32,
        of: Remap,
        new: Option<u64>,
        time_ns: u64,
    ) {
        if let Some(new) = new {
            // This happens while the parts are aside, since their pieces must outlast the replaced
            // range.
            self.drop_range(process, new, new.saturating_add(whole_pages(of.length)));
        }
        let Some(space) = self.spaces.get_mut(&process) else { return };
        // Empty if nothing of the old range is known.
        let parts = space.aside.remove(&tid).unwrap_or_default();
        match new {
            Some(new) => self.place(process, of, new, parts, time_ns),
            None => parts.into_iter().for_each(|part| self.hold(process, part)),
        }
    }

    /// Inserts the parts of a range at its new address. If the range has shrunk, its tail is
    /// dropped. If it has grown, its growth gets the stack of its last part.
    fn place(&mut self, process: ProcessId, of: Remap, new: u64, parts: Vec<Part>, time_ns: u64) {
        let old_end = of.old.saturating_add(whole_pages(of.old_length));
        let copies = of.flags & MREMAP_DONTUNMAP != 0 || of.old_length == 0;
        // A second mapping of shared memory names no old range, only the address where it begins.
        let origin = match parts.iter().find(|part| part.end == old_end) {
            Some(last) => Some(last.piece),
            None if of.old_length == 0 => self.at(process, of.old),
            None => None,
        };
        let origin = origin.and_then(|id| self.pieces.get(&id).copied());
        let (kept, length) = (whole_pages(of.old_length), whole_pages(of.length));
        for part in &parts {
            let (start, end) = (part.start - of.old, (part.end - of.old).min(length));
            if copies {
                self.hold(process, *part);
            } else if start < end {
                self.hold(process, Part { start: new + start, end: new + end, ..*part });
            }
        }
        self.drop_parts(parts);
        let from = if copies { 0 } else { kept };
        if let Some(piece) = origin.filter(|_| length > from) {
            let (start, end) = (new + from, new + length);
            let id = self.count(Piece { size: end - start, time_ns, ..piece });
            self.hold(process, Part { start, end, piece: id });
            self.forget_unheld(id);
        }
    }

    fn at(&self, process: ProcessId, address: u64) -> Option<PieceId> {
        Some(self.spaces.get(&process)?.ranges.at(address)?.piece)
    }

    /// The end of the heap has moved from the first to the second of `ends`. Growth is a new piece.
    pub fn break_moves(&mut self, process: ProcessId, tid: u32, ends: [u64; 2], by: Piece) {
        let [before, after] = ends.map(whole_pages);
        if before < after {
            self.map(process, tid, before, after - before, Some(by));
        } else {
            self.unmap(process, tid, after, before - after);
        }
    }

    fn set_aside(&mut self, process: ProcessId, tid: u32, start: u64, length: u64) {
        self.drop_aside(process, tid);
        let end = start.saturating_add(whole_pages(length));
        let parts = self.take(process, start, end);
        let Some(space) = self.spaces.get_mut(&process) else { return };
        if parts.is_empty() {
            return;
        }
        let full = space.aside.len() >= MAX_THREADS;
        let old = if full { std::mem::take(&mut space.aside) } else { FxHashMap::default() };
        space.aside.insert(tid, parts);
        for parts in old.into_values() {
            self.unpaired += 1;
            self.drop_parts(parts);
        }
    }

    /// Drops the parts that the thread's last call has put aside: the record of that call's end was
    /// lost.
    fn drop_aside(&mut self, process: ProcessId, tid: u32) {
        let Some(space) = self.spaces.get_mut(&process) else { return };
        if let Some(parts) = space.aside.remove(&tid) {
            self.unpaired += 1;
            self.drop_parts(parts);
        }
    }

    fn drop_range(&mut self, process: ProcessId, start: u64, end: u64) {
        let parts = self.take(process, start, end);
        self.drop_parts(parts);
    }

    fn drop_parts(&mut self, parts: Vec<Part>) {
        parts.into_iter().for_each(|part| self.forget_unheld(part.piece));
    }

    /// Removes a piece if nothing of it is held and none of it is aside.
    fn forget_unheld(&mut self, id: PieceId) {
        if self.pieces.get(&id).is_some_and(|piece| piece.held == 0 && !self.is_aside(id, piece)) {
            self.pieces.remove(&id);
        }
    }

    fn is_aside(&self, id: PieceId, piece: &Piece) -> bool {
        let space = self.spaces.get(&piece.process);
        let mut parts = space.into_iter().flat_map(|space| space.aside.values().flatten());
        parts.any(|part| part.piece == id)
    }

    fn take(&mut self, process: ProcessId, start: u64, end: u64) -> Vec<Part> {
        let Some(space) = self.spaces.get_mut(&process) else { return Vec::new() };
        let before = space.ranges.len();
        let parts = space.ranges.take(start, end);
        self.ranges = self.ranges + space.ranges.len() - before;
        for part in &parts {
            if let Some(piece) = self.pieces.get_mut(&part.piece) {
                piece.held = piece.held.saturating_sub(part.bytes());
            }
        }
        if self.ranges > self.bound {
            self.drop_behind(process, end);
        }
        parts
    }

    /// Drops the range at `start`: a range was cut in two, and there is room for only one of its
    /// ends.
    fn drop_behind(&mut self, process: ProcessId, start: u64) {
        let Some(space) = self.spaces.get_mut(&process) else { return };
        let Some(part) = space.ranges.at(start) else { return };
        self.unheld += 1;
        self.drop_range(process, part.start, part.end);
    }

    /// Inserts a part at free addresses. (If a record was lost, the addresses may be taken: the
    /// existing range is replaced.)
    fn hold(&mut self, process: ProcessId, part: Part) {
        self.drop_range(process, part.start, part.end);
        let Some(piece) = self.pieces.get_mut(&part.piece) else { return };
        if self.ranges >= self.bound {
            self.unheld += 1;
            return;
        }
        piece.held += part.bytes();
        self.spaces.entry(process).or_default().ranges.put(part);
        self.ranges += 1;
    }

    /// The ranges of a process, by address, with their pieces.
    pub fn ranges_of(&self, process: ProcessId) -> Vec<(Part, Piece)> {
        let space = self.spaces.get(&process);
        let ranges = space.into_iter().flat_map(|space| space.ranges.iter());
        ranges.filter_map(|part| Some((part, *self.pieces.get(&part.piece)?))).collect()
    }
}
