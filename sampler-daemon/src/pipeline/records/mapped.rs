//! Calls that change what is mapped: who calls, and what the calls do to the store.
//!
//! # Whose call it is
//!
//! The probes on the C library's functions report every call alike; the stack distinguishes the
//! callers.
//! A call is an **allocator's** if one of these frames is allocator code
//! ([`crate::inspect::allocator::text`]):
//!
//! - the frames from the leaf on that lie in the file of the mapping function. `mmap` and `malloc`
//!   are both in the libc: glibc gets its memory by `malloc → sysmalloc → mmap`, inside one file;
//! - the frames after these that lie in the next file. A preloaded jemalloc calls the libc's
//!   `mmap`; so does an allocator that is linked into the program.
//!
//! Every other call is the program's own (**direct**): `main → pool_grow → mmap`, the stacks that
//! `pthread_create` maps, the arenas of a language's own allocator (python's `_PyObject_Arena…`).
//!
//! A stack may be missing, or not unwound to its end. The function that called `mmap` is known at
//! least:
//!
//! - If the caller's file has no allocator, the call is the program's.
//! - In the file of `mmap` itself, each function calls `mmap` for one purpose only: glibc's
//!   `sysmalloc` for malloc, `allocate_stack` for threads. So what complete stacks show of a
//!   function holds for all its calls.
//! - Any other call is **unknown**. Unknown calls count in the upper end of intervals only.
//!
//! Only anonymous memory is followed. Mapped files are not memory that a program has asked for, but
//! they end the mappings that they replace.

use super::captured_stack::ending;
use super::ingest::Ingest;
use crate::inspect::allocator::text::AllocatorText;
use crate::pipeline::processes::process::ProfiledProcess;
use crate::store::mapped::{Origin, Piece, Remap};
use crate::store::stacks::StackFrame;
use crate::store::{ProcessId, StackId};
use crate::unwind::{Frame, ModuleId, Registers, StackMemory, UnwindEnd};
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::wire::{MappingCall, MappingRecord};
use std::sync::Arc;

/// Flags of `mmap`.
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_HUGETLB: u64 = 0x4_0000;
/// Position of the logarithm of the huge page's size in the flags; 0 is the usual size.
const HUGE_SHIFT: u32 = 26;
const USUAL_HUGE_LOG2: u64 = 21;

/// Allocator code of modules, and the callers of `mmap`.
#[derive(Default)]
pub(in crate::pipeline) struct AllocatorTexts {
    /// Allocator code, read on first use.
    code: FxHashMap<ModuleId, Arc<AllocatorText>>,
    /// For which origin a function of a C library maps, by the function's first address.
    /// Complete stacks have shown it; `None`: for both origins.
    callers: FxHashMap<(ModuleId, u64), Option<Origin>>,
}

/// Kinds of code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// An allocator's.
    Allocator,
    /// Other code of a file that has an allocator in it.
    BesideAllocator,
    /// Code of a file without an allocator.
    Other,
}

impl AllocatorTexts {
    /// Forgets the modules for which `keep` does not hold.
    pub(in crate::pipeline) fn retain(&mut self, keep: impl Fn(ModuleId) -> bool) {
        self.code.retain(|id, _| keep(*id));
        self.callers.retain(|(id, _), _| keep(*id));
    }
}

impl Ingest {
    /// Adds a mapping call to the store.
    pub(in crate::pipeline) fn mapping(&mut self, record: &MappingRecord, stack: &[u8]) {
        let Some(call) = record.what() else {
            return self.outcomes.add(Outcome::Malformed, 1);
        };
        let Some(mut profiled) = self.source(record.space) else {
            return self.outcomes.add(Outcome::UnknownProcess, 1);
        };
        let process = profiled.id;
        self.records += 1;
        self.processes.get_mut(process).spending.read_mapping(record.stack_bytes);
        if self.mapped.of_image(process, record.space.generation) {
            self.mapping_of(&mut profiled, call, record, stack);
        }
        self.table.put_back(record.space.slot, profiled);
    }

    fn mapping_of(
        &mut self,
        profiled: &mut ProfiledProcess,
        call: MappingCall,
        record: &MappingRecord,
        stack: &[u8],
    ) {
        let (process, tid) = (profiled.id, record.tid);
        let remap = Remap {
            old: record.old_address,
            old_length: record.old_length,
            length: record.length,
            flags: record.flags,
        };
        match call {
            MappingCall::Map => {
                let is_anonymous = record.flags & MAP_ANONYMOUS != 0;
                let piece = is_anonymous.then(|| self.piece(profiled, record, stack));
                self.mapped.map(process, tid, record.address, mapped_bytes(record), piece);
            }
            MappingCall::UnmapBegins => {
                self.mapped.unmap(process, tid, record.address, record.length);
            }
            MappingCall::RemapBegins => self.mapped.remap_begins(process, tid, remap),
            MappingCall::RemapEnds => {
                let new = Some(record.address).filter(|at| *at <= MappingRecord::LAST_ADDRESS);
                self.mapped.remap_ends(process, tid, remap, new, record.time_ns);
            }
            MappingCall::Break => {
                let piece = self.piece(profiled, record, stack);
                let ends = [record.old_address, record.address];
                self.mapped.break_moves(process, tid, ends, piece);
            }
        }
    }

    /// The piece that an allocating call has mapped. The store sets its size.
    fn piece(
        &mut self,
        profiled: &mut ProfiledProcess,
        record: &MappingRecord,
        stack: &[u8],
    ) -> Piece {
        let (stack, origin) = self.caller(profiled, record, stack);
        let (process, time_ns) = (profiled.id, record.time_ns);
        let user = self.processes.get(process).user;
        Piece { process, user, stack, origin, size: 0, held: 0, time_ns }
    }

    /// The stack of a call, and the call's origin.
    fn caller(
        &mut self,
        profiled: &mut ProfiledProcess,
        record: &MappingRecord,
        stack: &[u8],
    ) -> (StackId, Origin) {
        let end = self.unwound(profiled, record, stack);
        let frames = std::mem::take(&mut self.frames);
        let known = match end {
            // Nothing is known of the caller.
            UnwindEnd::NoMapping => &frames[..frames.len().min(1)],
            _ => &frames[..],
        };
        let origin = self.whose(known, end == UnwindEnd::Complete);
        let id = match origin {
            // Calls of an allocator are only summed.
            Origin::Allocator => StackId::LOST,
            _ if record.is_flooded() => StackId::LOST,
            // An allocator's stack often ends where its own return is probed, so endings are
            // counted for other calls only.
            Origin::Direct | Origin::Unknown => self.unwound_stack(profiled.id, &frames, end),
        };
        self.frames = frames;
        (id, origin)
    }

    /// Interns a stack that was unwound, and counts how it ended.
    fn unwound_stack(&mut self, process: ProcessId, frames: &[Frame], end: UnwindEnd) -> StackId {
        let (outcome, note) = ending(end);
        self.outcomes.add(outcome, 1);
        let code = frames.iter().map(|frame| StackFrame::Code(*frame));
        let holder = self.processes.holder(process);
        let stack = self.stacks.intern(holder, code.chain(note.map(StackFrame::Note)));
        stack.unwrap_or_else(|| {
            self.outcomes.add(Outcome::StackTableFull, 1);
            StackId::TABLE_FULL
        })
    }

    /// The origin of a call, by its frames, or else by other stacks of the calling function.
    fn whose(&mut self, frames: &[Frame], is_complete: bool) -> Origin {
        let origin = origin(frames, is_complete, |frame| self.code(frame));
        let caller = match frames {
            [function, caller, ..] if caller.module == function.module => {
                self.modules.function(*caller).and_then(|(_, start)| Some((caller.module, start?)))
            }
            _ => None,
        };
        let Some(caller) = caller else { return origin.unwrap_or(Origin::Unknown) };
        let Some(origin) = origin else {
            return self
                .allocator_texts
                .callers
                .get(&caller)
                .copied()
                .flatten()
                .unwrap_or(Origin::Unknown);
        };
        let seen = self.allocator_texts.callers.entry(caller).or_insert(Some(origin));
        if *seen != Some(origin) {
            *seen = None;
        }
        origin
    }

    /// Unwinds into `frames`, the probed function first.
    fn unwound(
        &mut self,
        profiled: &mut ProfiledProcess,
        record: &MappingRecord,
        stack: &[u8],
    ) -> UnwindEnd {
        self.frames.clear();
        let (generation, time_ns) = (record.space.generation, record.time_ns);
        let Some(image) = self.image(profiled, generation, time_ns) else {
            return UnwindEnd::NoMapping;
        };
        let function = image.resolve(&mut self.modules, record.function);
        self.name_probe(profiled, function);
        self.frames.push(function);
        let Some(image) = self.image(profiled, generation, time_ns) else {
            return UnwindEnd::NoMapping;
        };
        let registers = Registers { ip: record.ip, sp: record.sp, bp: record.bp };
        let memory = StackMemory { start: record.sp, bytes: stack, hijacked: None };
        image.unwind(&mut self.modules, registers, memory, &mut self.frames)
    }

    fn code(&mut self, frame: Frame) -> Code {
        let modules = &self.modules;
        let code = self.allocator_texts.code.entry(frame.module);
        let code = code.or_insert_with(|| Arc::new(modules.allocator_text(frame.module)));
        if code.whole {
            return Code::Allocator;
        }
        if code.is_empty() {
            return Code::Other;
        }
        let code = Arc::clone(code);
        match self.modules.function(frame) {
            Some((svma, start)) if code.has(svma, start) => Code::Allocator,
            _ => Code::BesideAllocator,
        }
    }

    /// Ends all mappings of the process `id`.
    pub(in crate::pipeline) fn end_mappings(&mut self, id: ProcessId) {
        self.mapped.end(id);
    }
}

/// Bytes that a call really maps: huge pages are mapped as a whole.
fn mapped_bytes(record: &MappingRecord) -> u64 {
    if record.flags & MAP_HUGETLB == 0 {
        return record.length;
    }
    let log2 = record.flags >> HUGE_SHIFT & 0x3f;
    let page = 1u64 << if log2 == 0 { USUAL_HUGE_LOG2 } else { log2 };
    record.length.checked_next_multiple_of(page).unwrap_or(record.length)
}

/// The origin of a call by its stack, leaf first; `None` if the origin depends on missing frames.
fn origin(
    frames: &[Frame],
    is_complete: bool,
    mut code: impl FnMut(Frame) -> Code,
) -> Option<Origin> {
    let mut files = frames.chunk_by(|a, b| a.module == b.module);
    let nearest: Vec<Code> = files.by_ref().take(2).flatten().map(|frame| code(*frame)).collect();
    if nearest.contains(&Code::Allocator) {
        return Some(Origin::Allocator);
    }
    // The last of `nearest` is in the second file, unless the stack has only the first file, which
    // has the mapping function.
    let is_others = nearest.len() > 1 && nearest.last() == Some(&Code::Other);
    let is_decided = is_complete || files.next().is_some() || is_others;
    is_decided.then_some(Origin::Direct)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBC: ModuleId = ModuleId(1);
    const JEMALLOC: ModuleId = ModuleId(2);
    const PROGRAM: ModuleId = ModuleId(3);

    /// Offset of allocator code in any file.
    const ALLOCATES: u64 = 7;

    fn of(frames: &[(ModuleId, u64)]) -> Origin {
        let frames: Vec<Frame> = frames
            .iter()
            .map(|(module, offset)| Frame { module: *module, offset: *offset })
            .collect();
        origin(&frames, true, code).unwrap()
    }

    fn code(frame: Frame) -> Code {
        match frame {
            _ if frame.module == JEMALLOC || frame.offset == ALLOCATES => Code::Allocator,
            _ if frame.module == PROGRAM => Code::Other,
            _ => Code::BesideAllocator,
        }
    }

    #[test]
    fn a_cut_stack_has_no_origin_if_it_may_hide_an_allocator() {
        let of = |frames: &[(ModuleId, u64)]| {
            let frames: Vec<Frame> = frames
                .iter()
                .map(|(module, offset)| Frame { module: *module, offset: *offset })
                .collect();
            origin(&frames, false, code)
        };
        let (wrapper, beside) = ((LIBC, 1), ModuleId(4));
        // mmap ← ?, mmap ← sysmalloc ← ?
        assert_eq!(of(&[wrapper]), None);
        assert_eq!(of(&[wrapper, (LIBC, 2)]), None);
        // A file with an allocator linked in may be further up.
        assert_eq!(of(&[wrapper, (beside, 2)]), None);
        assert_eq!(of(&[wrapper, (beside, 2), (PROGRAM, 1)]), Some(Origin::Direct));
        assert_eq!(of(&[wrapper, (PROGRAM, 1)]), Some(Origin::Direct));
        assert_eq!(of(&[wrapper, (LIBC, 2), (LIBC, ALLOCATES)]), Some(Origin::Allocator));
        assert_eq!(of(&[wrapper, (JEMALLOC, 2)]), Some(Origin::Allocator));
    }

    #[test]
    fn the_nearest_frames_decide_the_origin_of_a_mapping() {
        let wrapper = (LIBC, 1);
        // mmap ← sysmalloc ← malloc ← main
        let glibc = [wrapper, (LIBC, 2), (LIBC, ALLOCATES), (PROGRAM, 1)];
        assert_eq!(of(&glibc), Origin::Allocator);
        // mmap ← pages_map ← arena ← main
        assert_eq!(of(&[wrapper, (JEMALLOC, 1), (PROGRAM, 1)]), Origin::Allocator);
        // An allocator that is linked in.
        let linked = [wrapper, (PROGRAM, 2), (PROGRAM, ALLOCATES), (PROGRAM, 1)];
        assert_eq!(of(&linked), Origin::Allocator);
        assert_eq!(of(&[(PROGRAM, 2), (PROGRAM, ALLOCATES), (PROGRAM, 1)]), Origin::Allocator);
        // mmap ← main, mmap ← pthread_create ← main
        assert_eq!(of(&[wrapper, (PROGRAM, 1)]), Origin::Direct);
        assert_eq!(of(&[wrapper, (LIBC, 2), (PROGRAM, 1)]), Origin::Direct);
        // A hook that malloc calls is no allocator: mmap ← hook ← malloc.
        let hook = [wrapper, (PROGRAM, 1), (LIBC, ALLOCATES), (PROGRAM, 2)];
        assert_eq!(of(&hook), Origin::Direct);
        assert_eq!(of(&[]), Origin::Direct);
    }

    #[test]
    fn huge_page_mappings_are_rounded_up() {
        let record = |length, flags| MappingRecord { length, flags, ..EMPTY };
        assert_eq!(mapped_bytes(&record(5000, MAP_ANONYMOUS)), 5000);
        assert_eq!(mapped_bytes(&record(5000, MAP_ANONYMOUS | MAP_HUGETLB)), 2 << 20);
        let giant = MAP_ANONYMOUS | MAP_HUGETLB | 30 << HUGE_SHIFT;
        assert_eq!(mapped_bytes(&record((1 << 30) + 1, giant)), 2 << 30);
    }

    const EMPTY: MappingRecord = MappingRecord {
        kind: 8,
        stack_bytes: 0,
        space: sampler_common::wire::Space { slot: 0, generation: 1 },
        tid: 1,
        call: 1,
        time_ns: 0,
        address: 0,
        length: 0,
        old_address: 0,
        old_length: 0,
        flags: 0,
        function: 0,
        ip: 0,
        sp: 0,
        bp: 0,
    };
}
