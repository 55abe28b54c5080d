//! Interned stacks: every distinct stack once, as indices into every distinct frame once.

use crate::unwind::Frame;
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};

/// Distinct stacks held at most; further ones are [`StackId::TABLE_FULL`].
pub const MAX_STACKS: usize = 256 * 1024;
/// Distinct frames held at most; a stack with a further one is [`StackId::TABLE_FULL`].
pub const MAX_FRAME_TABLE: usize = 1024 * 1024;

/// Frames of all stacks together at most (64 MiB); further stacks are [`StackId::TABLE_FULL`].
pub const MAX_HELD_FRAMES: usize = 16 * 1024 * 1024;

/// A stack in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

impl StackId {
    /// Samples whose stack found no room in the ring buffer.
    pub const LOST: StackId = StackId(0);
    /// Samples whose stack found the stack table full.
    pub const TABLE_FULL: StackId = StackId(1);
}

/// A frame of a stored stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackFrame {
    /// Code.
    Code(Frame),
    /// A remark that stands where code is missing.
    Note(Note),
}

impl StackFrame {
    /// Its code, if it is no remark.
    pub fn code(self) -> Option<Frame> {
        match self {
            StackFrame::Code(frame) => Some(frame),
            StackFrame::Note(_) => None,
        }
    }
}

/// Why frames are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The record with the stack was lost.
    LostStacks,
    /// The stack table was full.
    TableFull,
    /// The snapshot ended before the stack's root.
    Truncated,
    /// A frame has no unwind information.
    NoUnwindInformation,
    /// A frame has no unwind information, and its frame pointer led on.
    Guessed,
    /// The code of a frame is gone.
    Unmapped,
}

impl Note {
    /// As people see it.
    pub const fn name(self) -> &'static str {
        match self {
            Note::LostStacks => "[lost stacks]",
            Note::TableFull => "[stack table full]",
            Note::Truncated => "[truncated]",
            Note::NoUnwindInformation => "[no unwind information]",
            Note::Guessed => "[frames may be missing]",
            Note::Unmapped => "[unmapped code]",
        }
    }
}

/// The table.
pub struct Stacks {
    frames: Vec<StackFrame>,
    frame_ids: FxHashMap<StackFrame, u32>,
    stacks: Vec<Box<[u32]>>,
    // From the hash of a stack to the stacks that have it: the frames are kept only once.
    by_hash: FxHashMap<u64, Vec<u32>>,
    /// Frames of all stacks together.
    held: usize,
    scratch: Vec<u32>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        let mut stacks = Stacks {
            frames: Vec::new(),
            frame_ids: FxHashMap::default(),
            stacks: Vec::new(),
            by_hash: FxHashMap::default(),
            held: 0,
            scratch: Vec::new(),
        };
        let lost = stacks.intern([StackFrame::Note(Note::LostStacks)].into_iter());
        let full = stacks.intern([StackFrame::Note(Note::TableFull)].into_iter());
        debug_assert_eq!((lost, full), (Some(StackId::LOST), Some(StackId::TABLE_FULL)));
        stacks
    }
}

impl Stacks {
    /// The id of a stack, leaf first; `None` if the table has no room for it.
    pub fn intern(&mut self, frames: impl Iterator<Item = StackFrame>) -> Option<StackId> {
        self.scratch.clear();
        for frame in frames {
            let next = self.frames.len() as u32;
            let id = match self.frame_ids.get(&frame) {
                Some(id) => *id,
                None if self.frames.len() >= MAX_FRAME_TABLE => return None,
                None => {
                    self.frames.push(frame);
                    self.frame_ids.insert(frame, next);
                    next
                }
            };
            self.scratch.push(id);
        }
        let mut hasher = rustc_hash::FxHasher::default();
        self.scratch.hash(&mut hasher);
        let hash = hasher.finish();
        let candidates = self.by_hash.get(&hash).map_or(&[][..], Vec::as_slice);
        if let Some(id) = candidates.iter().find(|id| *self.stacks[**id as usize] == *self.scratch)
        {
            return Some(StackId(*id));
        }
        if self.stacks.len() >= MAX_STACKS || self.held + self.scratch.len() > MAX_HELD_FRAMES {
            return None;
        }
        let id = self.stacks.len() as u32;
        self.by_hash.entry(hash).or_default().push(id);
        self.held += self.scratch.len();
        self.stacks.push(self.scratch.as_slice().into());
        Some(StackId(id))
    }

    /// Frame numbers of a stack, leaf first.
    pub fn get(&self, id: StackId) -> &[u32] {
        &self.stacks[id.0 as usize]
    }

    /// The frame with this number.
    pub fn frame(&self, number: u32) -> StackFrame {
        self.frames[number as usize]
    }

    /// Stacks held and frames held.
    pub fn len(&self) -> (usize, usize) {
        (self.stacks.len(), self.frames.len())
    }

    /// Never: two stacks are always there.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::ModuleId;

    #[test]
    fn equal_stacks_are_one() {
        let mut stacks = Stacks::default();
        let code = |offset| StackFrame::Code(Frame { module: ModuleId(0), offset });
        let a = stacks.intern([code(1), code(2)].into_iter());
        let b = stacks.intern([code(2), code(1)].into_iter());
        assert_ne!(a, b);
        assert_eq!(a, stacks.intern([code(1), code(2)].into_iter()));
        assert_eq!(stacks.len(), (4, 4));
        assert_eq!(stacks.frame(stacks.get(StackId::LOST)[0]), StackFrame::Note(Note::LostStacks));
    }

    #[test]
    fn a_full_table_does_not_grow() {
        let mut stacks = Stacks { held: MAX_HELD_FRAMES, ..Stacks::default() };
        let code = |offset| StackFrame::Code(Frame { module: ModuleId(0), offset });
        for offset in 0..10 {
            assert_eq!(stacks.intern([code(1), code(2), code(offset % 3)].into_iter()), None);
        }
        assert_eq!(stacks.by_hash.len(), 2);
        let lost = [StackFrame::Note(Note::LostStacks)];
        assert_eq!(stacks.intern(lost.into_iter()), Some(StackId::LOST));
    }
}
