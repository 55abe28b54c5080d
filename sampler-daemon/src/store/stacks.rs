//! Interned stacks: every distinct stack is stored once, as indices into a table that has every
//! distinct frame once.
//!
//! A stack or frame is held by the process that had it first. A process may hold only its share of
//! the table ([`share`](sampler_common::share)). [`Stacks::collect`] removes stacks that nothing
//! needs any more.

use super::ProcessId;
use crate::unwind::Frame;
use rustc_hash::FxHashMap;
use sampler_common::share::{Holder, Shares};
use std::hash::{Hash, Hasher};

/// Maximum number of distinct stacks. Further stacks become [`StackId::TABLE_FULL`].
pub const MAX_STACKS: usize = 256 * 1024;
/// Maximum number of distinct frames. A stack with a further frame becomes [`StackId::TABLE_FULL`].
pub const MAX_FRAME_TABLE: usize = 1024 * 1024;

/// Maximum number of frames of all stacks together (64 MiB). Further stacks become
/// [`StackId::TABLE_FULL`].
pub const MAX_HELD_FRAMES: usize = 16 * 1024 * 1024;

/// A stack in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

impl StackId {
    /// The stack of samples whose stack found no room in the ring buffer.
    pub const LOST: StackId = StackId(0);
    /// The stack of samples that found the stack table full.
    pub const TABLE_FULL: StackId = StackId(1);

    /// Whether the samples of this stack have frames.
    pub fn has_frames(self) -> bool {
        self != StackId::LOST && self != StackId::TABLE_FULL
    }
}

/// A frame of a stored stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackFrame {
    /// Code.
    Code(Frame),
    /// A note in the place of missing code.
    Note(Note),
}

impl StackFrame {
    /// The code of the frame, unless it is a note.
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
    /// A frame has no unwind information. The walk went on by its frame pointer.
    Guessed,
    /// The code of a frame is not mapped any more.
    Unmapped,
}

impl Note {
    /// The name that users see.
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

/// The part of the table that one process or all processes hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    stacks: usize,
    frames: usize,
    /// Frames of all held stacks together.
    depth: usize,
}

impl Usage {
    /// Used fraction of each bound.
    fn shares(&self) -> [f64; 3] {
        let Usage { stacks, frames, depth } = *self;
        let of = |used: usize, bound: usize| used as f64 / bound as f64;
        [of(stacks, MAX_STACKS), of(frames, MAX_FRAME_TABLE), of(depth, MAX_HELD_FRAMES)]
    }
}

/// The shares of processes in each bound.
#[derive(Default)]
struct UsageShares {
    stacks: Shares<ProcessId>,
    frames: Shares<ProcessId>,
    depth: Shares<ProcessId>,
}

impl UsageShares {
    /// Whether a process may hold more, if all processes together hold `used`.
    fn has_room(&self, holder: Holder<ProcessId>, used: &Usage) -> bool {
        self.stacks.has_room(holder, used.stacks, MAX_STACKS)
            && self.frames.has_room(holder, used.frames, MAX_FRAME_TABLE)
            && self.depth.has_room(holder, used.depth, MAX_HELD_FRAMES)
    }
}

/// The process that needs each stack, if any.
pub struct Needs(Vec<Option<ProcessId>>);

/// An entry and its holder. The holder of a vacant entry means nothing.
struct Held<T> {
    by: ProcessId,
    what: T,
}

/// The stack table.
pub struct Stacks {
    frames: Vec<Held<StackFrame>>,
    frame_ids: FxHashMap<StackFrame, u32>,
    stacks: Vec<Held<Box<[u32]>>>,
    // From the hash of a stack to the stacks with that hash. So each stack's frames are stored only
    // once.
    by_hash: FxHashMap<u64, Vec<u32>>,
    used: Usage,
    /// Usage after the last collection.
    collected: Usage,
    shares: UsageShares,
    /// Free numbers of stacks and frames.
    vacant_stacks: Vec<u32>,
    vacant_frames: Vec<u32>,
    scratch: Vec<u32>,
}

/// The holder of the two permanent stacks: no process.
const NOBODY: Holder<ProcessId> = Holder::of_unknown_user(ProcessId(u32::MAX));

impl Default for Stacks {
    fn default() -> Stacks {
        let mut stacks = Stacks {
            frames: Vec::new(),
            frame_ids: FxHashMap::default(),
            stacks: Vec::new(),
            by_hash: FxHashMap::default(),
            used: Usage::default(),
            collected: Usage::default(),
            shares: UsageShares::default(),
            vacant_stacks: Vec::new(),
            vacant_frames: Vec::new(),
            scratch: Vec::new(),
        };
        let note = |note| std::iter::once(StackFrame::Note(note));
        let lost = stacks.intern(NOBODY, note(Note::LostStacks));
        let full = stacks.intern(NOBODY, note(Note::TableFull));
        debug_assert_eq!((lost, full), (Some(StackId::LOST), Some(StackId::TABLE_FULL)));
        stacks
    }
}

impl Stacks {
    /// Returns the id of a process's stack, leaf first. `None`: the stack is not in the table, and
    /// the process already holds its share of the table.
    pub fn intern(
        &mut self,
        holder: Holder<ProcessId>,
        frames: impl Iterator<Item = StackFrame>,
    ) -> Option<StackId> {
        self.scratch.clear();
        for frame in frames {
            let id = match self.frame_ids.get(&frame) {
                Some(id) => *id,
                None => self.add_frame(holder, frame)?,
            };
            self.scratch.push(id);
        }
        let hash = hash(&self.scratch);
        let candidates = self.by_hash.get(&hash).map_or(&[][..], Vec::as_slice);
        let is_it = |id: &&u32| *self.stacks[**id as usize].what == *self.scratch;
        match candidates.iter().find(is_it) {
            Some(id) => Some(StackId(*id)),
            None => self.add_stack(holder, hash),
        }
    }

    fn add_frame(&mut self, holder: Holder<ProcessId>, frame: StackFrame) -> Option<u32> {
        if !self.shares.has_room(holder, &self.used) {
            return None;
        }
        self.used.frames += 1;
        self.shares.frames.add(holder, 1);
        let held = Held { by: holder.process, what: frame };
        let id = put(&mut self.frames, &mut self.vacant_frames, held);
        self.frame_ids.insert(frame, id);
        Some(id)
    }

    fn add_stack(&mut self, holder: Holder<ProcessId>, hash: u64) -> Option<StackId> {
        if !self.shares.has_room(holder, &self.used) {
            return None;
        }
        let depth = self.scratch.len();
        self.used.stacks += 1;
        self.used.depth += depth;
        self.shares.stacks.add(holder, 1);
        self.shares.depth.add(holder, depth);
        let held = Held { by: holder.process, what: self.scratch.as_slice().into() };
        let id = put(&mut self.stacks, &mut self.vacant_stacks, held);
        self.by_hash.entry(hash).or_default().push(id);
        Some(StackId(id))
    }

    /// Whether the table has grown enough since the last [`Stacks::collect`] for another
    /// collection: by a sixteenth of a bound, to at least a quarter.
    pub fn has_grown(&self) -> bool {
        let (used, before) = (self.used.shares(), self.collected.shares());
        used.iter().zip(before).any(|(used, before)| *used >= 0.25 && used - before >= 0.0625)
    }

    /// Whether the processes for which `is_of_kind` is true hold a quarter of the table or more.
    pub fn is_filled_by(&self, is_of_kind: impl Fn(ProcessId) -> bool) -> bool {
        let UsageShares { stacks, frames, depth } = &self.shares;
        let [stacks, frames, depth] = [stacks, frames, depth].map(|of| {
            of.iter().filter(|(process, _)| is_of_kind(*process)).map(|(_, held)| held).sum()
        });
        Usage { stacks, frames, depth }.shares().iter().any(|share| *share >= 0.25)
    }

    /// Starts a collection, with no stack needed.
    pub fn needs(&self) -> Needs {
        Needs(vec![None; self.stacks.len()])
    }

    /// Marks a stack as needed by a process.
    pub fn need(&self, needs: &mut Needs, process: ProcessId, stack: StackId) {
        let index = stack.0 as usize;
        need_by(&mut needs.0[index], process, self.stacks[index].by);
    }

    /// Removes stacks that nothing needs, and frames that are in no stack any more. Their numbers
    /// are reused.
    pub fn collect(
        &mut self,
        mut needs: Needs,
        holder_of: impl Fn(ProcessId) -> Holder<ProcessId>,
    ) {
        for always in [StackId::LOST, StackId::TABLE_FULL] {
            needs.0[always.0 as usize] = Some(NOBODY.process);
        }
        self.by_hash.clear();
        self.vacant_stacks.clear();
        let mut frames: Vec<Option<ProcessId>> = vec![None; self.frames.len()];
        for (id, (stack, need)) in (0..).zip(self.stacks.iter_mut().zip(needs.0)) {
            let Some(by) = need else {
                stack.what = Box::default();
                self.vacant_stacks.push(id);
                continue;
            };
            stack.by = by;
            for frame in &stack.what {
                let index = *frame as usize;
                need_by(&mut frames[index], by, self.frames[index].by);
            }
            self.by_hash.entry(hash(&stack.what)).or_default().push(id);
        }
        self.collect_frames(frames);
        self.recount(holder_of);
        self.collected = self.used;
    }

    fn recount(&mut self, holder_of: impl Fn(ProcessId) -> Holder<ProcessId>) {
        // A vacant stack is empty. All others have a frame.
        let stacks = self.stacks.iter().filter(|stack| !stack.what.is_empty());
        let depths = stacks.map(|stack| (stack.by, stack.what.len()));
        self.shares.stacks.recount(depths.clone().map(|(by, _)| holder_of(by)));
        self.shares.depth.recount_sizes(depths.clone().map(|(by, depth)| (holder_of(by), depth)));
        let frames = self.frame_ids.values().map(|id| holder_of(self.frames[*id as usize].by));
        self.shares.frames.recount(frames);
        self.used = Usage {
            stacks: self.stacks.len() - self.vacant_stacks.len(),
            frames: self.frame_ids.len(),
            depth: depths.map(|(_, depth)| depth).sum(),
        };
    }

    fn collect_frames(&mut self, needs: Vec<Option<ProcessId>>) {
        self.frame_ids.clear();
        self.vacant_frames.clear();
        for (id, (frame, need)) in (0..).zip(self.frames.iter_mut().zip(needs)) {
            let Some(by) = need else {
                self.vacant_frames.push(id);
                continue;
            };
            frame.by = by;
            self.frame_ids.insert(frame.what, id);
        }
    }

    /// Frame numbers of a stack, leaf first.
    pub fn get(&self, id: StackId) -> &[u32] {
        &self.stacks[id.0 as usize].what
    }

    /// The frame with this number.
    pub fn frame(&self, number: u32) -> StackFrame {
        self.frames[number as usize].what
    }

    /// Frames of all stacks, and some frames that are in no stack any more.
    pub fn frames(&self) -> impl Iterator<Item = StackFrame> {
        self.frame_ids.keys().copied()
    }

    /// Numbers of stacks and of frames in the table.
    pub fn len(&self) -> (usize, usize) {
        (self.used.stacks, self.used.frames)
    }

    /// False: two stacks are permanent.
    pub fn is_empty(&self) -> bool {
        self.used.stacks == 0
    }
}

/// Sets the holder of an entry that `process` needs. Of several processes, the previous holder
/// `before` stays if it needs the entry.
fn need_by(holder: &mut Option<ProcessId>, process: ProcessId, before: ProcessId) {
    if holder.is_none() || process == before {
        *holder = Some(process);
    }
}

fn hash(frames: &[u32]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    frames.hash(&mut hasher);
    hasher.finish()
}

/// Stores an entry at a vacant index, or at the end. Returns its index.
fn put<T>(all: &mut Vec<Held<T>>, vacant: &mut Vec<u32>, held: Held<T>) -> u32 {
    if let Some(id) = vacant.pop() {
        all[id as usize] = held;
        return id;
    }
    all.push(held);
    // The length never exceeds the bounds of the table.
    (all.len() - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::ModuleId;
    use sampler_common::share::alone;

    const HONEST: Holder<ProcessId> = of_user(1, 1);

    const fn of_user(user: u32, process: u32) -> Holder<ProcessId> {
        Holder { user, process: ProcessId(process) }
    }

    fn code(offset: u64) -> StackFrame {
        StackFrame::Code(Frame { module: ModuleId(0), offset })
    }

    #[test]
    fn equal_stacks_are_stored_once() {
        let mut stacks = Stacks::default();
        let a = stacks.intern(HONEST, [code(1), code(2)].into_iter());
        let b = stacks.intern(HONEST, [code(2), code(1)].into_iter());
        assert_ne!(a, b);
        assert_eq!(a, stacks.intern(of_user(1, 2), [code(1), code(2)].into_iter()));
        assert_eq!(stacks.len(), (4, 4));
        assert_eq!(stacks.frame(stacks.get(StackId::LOST)[0]), StackFrame::Note(Note::LostStacks));
    }

    /// Interns different stacks of a depth until one is refused. Returns how many were accepted.
    fn bomb(stacks: &mut Stacks, holder: Holder<ProcessId>, depth: u64) -> usize {
        let first = u64::from(holder.process.0) << 40;
        let each = (0..).map(|number| first + number * depth);
        each.take_while(|at| stacks.intern(holder, (*at..at + depth).map(code)).is_some()).count()
    }

    #[test]
    fn a_process_of_endless_stacks_leaves_room_for_others() {
        // One frame each; a thousand new frames each.
        for depth in [1, 1000] {
            let mut stacks = Stacks::default();
            for process in [10, 11, 12] {
                bomb(&mut stacks, of_user(1, process), depth);
            }
            let known = stacks.intern(of_user(1, 10), (10 << 40..(10 << 40) + depth).map(code));
            assert!(known.is_some(), "what is known is not refused");
            for number in 0..200 {
                let frames = [code(number), code(7), code(number / 10)];
                assert!(stacks.intern(HONEST, frames.into_iter()).is_some(), "{depth} {number}");
            }
            let (held, frames) = stacks.len();
            assert!(held <= MAX_STACKS && frames <= MAX_FRAME_TABLE, "{held} {frames}");
        }
    }

    #[test]
    fn a_user_of_endless_processes_leaves_room_for_others() {
        let mut stacks = Stacks::default();
        for process in 10..40 {
            bomb(&mut stacks, of_user(2, process), 1);
        }
        let honest =
            (0..10_000).filter(|at| stacks.intern(HONEST, std::iter::once(code(*at))).is_some());
        assert_eq!(honest.count(), 10_000);
    }

    #[test]
    fn unneeded_stacks_are_freed_and_their_room_reused() {
        let mut stacks = Stacks::default();
        let greedy = of_user(1, 10);
        let kept: Vec<_> = (0..10)
            .map(|at| stacks.intern(HONEST, [code(at), code(7)].into_iter()).unwrap())
            .collect();
        let shared = stacks.intern(greedy, [code(3)].into_iter()).unwrap();
        for round in 0..4 {
            let taken = bomb(&mut stacks, greedy, 1);
            assert!(taken > MAX_STACKS / 3, "{round}: {taken}");
            assert!(stacks.has_grown() && stacks.is_filled_by(|process| process == greedy.process));
            let mut needs = stacks.needs();
            kept.iter().for_each(|stack| stacks.need(&mut needs, HONEST.process, *stack));
            // The previous holder does not need the stack any more.
            stacks.need(&mut needs, HONEST.process, shared);
            stacks.collect(needs, Holder::of_unknown_user);
            assert_eq!(stacks.len(), (13, 12));
            assert!(!stacks.has_grown() && !stacks.is_filled_by(|_| true));
            assert_eq!(stacks.shares.stacks.held_by(greedy.process), 0);
        }
        assert!(stacks.stacks.len() < alone(MAX_STACKS) + 100);
        for (at, stack) in (0..).zip(kept) {
            let frames: Vec<_> = stacks.get(stack).iter().map(|id| stacks.frame(*id)).collect();
            assert_eq!(frames, [code(at), code(7)]);
            assert_eq!(stacks.intern(greedy, frames.into_iter()), Some(stack));
        }
    }

    /// Few frames in many orders: the bound on frames of all stacks is shared, too.
    #[test]
    fn deep_stacks_of_few_frames_leave_room_for_others() {
        let mut stacks = Stacks::default();
        let deep = |number: u64| (0..1000).map(move |at| code(number >> (at % 20) & 1));
        let taken =
            (0..).take_while(|at| stacks.intern(of_user(1, 10), deep(*at)).is_some()).count();
        assert_eq!(taken, alone(MAX_HELD_FRAMES) / 1000 + 1);
        assert!((0..200).all(|at| stacks.intern(HONEST, [code(at)].into_iter()).is_some()));
    }
}
