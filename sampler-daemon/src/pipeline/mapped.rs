//! Calls that change what is mapped: whose they are, and what they do to the store.
//!
//! # Whose call it is
//!
//! The probes on the C library's functions tell every call alike; the stack tells them apart. It is an **allocator's** if one of these frames is allocator code
//! ([`crate::target::inside`]):
//!
//! - the frames from the leaf on that lie in the file of the function itself: `mmap` and `malloc` are both in the libc, and glibc gets
//!   its memory by `malloc → sysmalloc → mmap` without leaving it;
//! - the frames behind them that lie in the next file: a preloaded jemalloc calls the libc's `mmap`, and a program with an
//!   allocator linked in has it there.
//!
//! Every other call is the program's own (**direct**): `main → pool_grow → mmap`, the stacks that `pthread_create` maps, the arenas of a language's own allocator (python's `_PyObject_Arena…`). A call whose stack was
//! lost counts as direct, under `[lost stacks]`: nobody knows.
//!
//! Only anonymous memory is followed. Mapped files are not memory that a program has asked for, but they end what they are
//! mapped over.

use super::ingest::Ingest;
use super::source::Source;
use crate::store::mapped::{Origin, Piece, Remap};
use crate::store::stacks::{Note, StackFrame};
use crate::store::{ProcessId, StackId};
use crate::target::inside::AllocatorCode;
use crate::unwind::{Frame, ModuleId, Registers, StackMemory, UnwindEnd};
use rustc_hash::FxHashMap;
use sampler_common::counters::Outcome;
use sampler_common::wire::{MappingCall, MappingRecord};
use std::sync::Arc;

/// Flags of `mmap`.
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_HUGETLB: u64 = 0x4_0000;
/// Where the logarithm of the size of a huge page stands in the flags; 0 is the usual size.
const HUGE_SHIFT: u32 = 26;
const USUAL_HUGE_LOG2: u64 = 21;

/// Allocator code of modules, read when first asked for.
#[derive(Default)]
pub(super) struct Insides(FxHashMap<ModuleId, Arc<AllocatorCode>>);

impl Ingest {
    /// Takes in a mapping call.
    pub(super) fn mapping(&mut self, record: &MappingRecord, stack: &[u8]) {
        let Some(call) = record.what() else {
            return self.outcomes.add(Outcome::Malformed, 1);
        };
        let Some(mut source) = self.source(record.space) else {
            return self.outcomes.add(Outcome::UnknownProcess, 1);
        };
        let process = source.process;
        self.records += 1;
        self.processes.get_mut(process).spending.read_mapping(record.stack_bytes);
        if self.mapped.of_image(process, record.space.generation) {
            self.mapping_of(&mut source, call, record, stack);
        }
        self.sources.insert(record.space.slot, source);
    }

    fn mapping_of(
        &mut self,
        source: &mut Source,
        call: MappingCall,
        record: &MappingRecord,
        stack: &[u8],
    ) {
        let (process, tid) = (source.process, record.tid);
        let remap = Remap {
            old: record.old_address,
            old_length: record.old_length,
            length: record.length,
            flags: record.flags,
        };
        match call {
            MappingCall::Map => {
                let is_anonymous = record.flags & MAP_ANONYMOUS != 0;
                let piece = is_anonymous.then(|| self.piece(source, record, stack));
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
                let piece = self.piece(source, record, stack);
                let ends = [record.old_address, record.address];
                self.mapped.break_moves(process, tid, ends, piece);
            }
        }
    }

    /// What an allocating call has mapped; its size is the store's to say.
    fn piece(&mut self, source: &mut Source, record: &MappingRecord, stack: &[u8]) -> Piece {
        let (stack, origin) = self.caller(source, record, stack);
        let (process, time_ns) = (source.process, record.time_ns);
        Piece { process, stack, origin, size: 0, held: 0, time_ns }
    }

    /// The stack of a call, and whose it is.
    fn caller(
        &mut self,
        source: &mut Source,
        record: &MappingRecord,
        stack: &[u8],
    ) -> (StackId, Origin) {
        if record.is_flooded() {
            return (StackId::LOST, Origin::Direct);
        }
        let end = self.unwound(source, record, stack);
        let (outcome, note) = match end {
            UnwindEnd::Complete => (Outcome::UnwindComplete, None),
            UnwindEnd::Truncated => (Outcome::UnwindTruncated, Some(Note::Truncated)),
            UnwindEnd::Failed => (Outcome::UnwindFailed, Some(Note::NoUnwindInformation)),
            UnwindEnd::NoMapping => (Outcome::NoMapping, Some(Note::NoUnwindInformation)),
        };
        let frames = std::mem::take(&mut self.frames);
        let origin = origin(&frames, |frame| self.is_allocator(frame));
        if origin == Origin::Direct {
            // An allocator's often ends where its own return is probed.
            self.outcomes.add(outcome, 1);
        }
        let code = frames.iter().map(|frame| StackFrame::Code(*frame));
        // An allocator's are only summed.
        let id = match origin {
            Origin::Allocator => Some(StackId::LOST),
            Origin::Direct => self.stacks.intern(code.chain(note.map(StackFrame::Note))),
        };
        self.frames = frames;
        let id = id.unwrap_or_else(|| {
            self.outcomes.add(Outcome::StackTableFull, 1);
            StackId::TABLE_FULL
        });
        (id, origin)
    }

    /// Fills `frames`, the function that was called first.
    fn unwound(&mut self, source: &mut Source, record: &MappingRecord, stack: &[u8]) -> UnwindEnd {
        self.frames.clear();
        let (generation, time_ns) = (record.space.generation, record.time_ns);
        let Some(image) = self.image(source, generation, time_ns) else {
            return UnwindEnd::NoMapping;
        };
        let function = image.resolve(&mut self.modules, record.function);
        self.name_probe(source, function);
        self.frames.push(function);
        let Some(image) = self.image(source, generation, time_ns) else {
            return UnwindEnd::NoMapping;
        };
        let registers = Registers { ip: record.ip, sp: record.sp, bp: record.bp };
        let memory = StackMemory { start: record.sp, bytes: stack, hijacked: None };
        image.unwind(&mut self.modules, registers, memory, &mut self.frames)
    }

    fn is_allocator(&mut self, frame: Frame) -> bool {
        let modules = &self.modules;
        let code = self.insides.0.entry(frame.module);
        let code = code.or_insert_with(|| Arc::new(modules.allocator_code(frame.module)));
        if code.whole {
            return true;
        }
        let code = Arc::clone(code);
        let Some((svma, start)) = self.modules.function(frame) else { return false };
        code.has(svma, start)
    }

    /// What the process of `id` has mapped is gone.
    pub(super) fn end_mappings(&mut self, id: ProcessId) {
        self.mapped.end(id);
    }
}

/// Bytes that a call really maps: huge pages are whole ones.
fn mapped_bytes(record: &MappingRecord) -> u64 {
    if record.flags & MAP_HUGETLB == 0 {
        return record.length;
    }
    let log2 = record.flags >> HUGE_SHIFT & 0x3f;
    let page = 1u64 << if log2 == 0 { USUAL_HUGE_LOG2 } else { log2 };
    record.length.checked_next_multiple_of(page).unwrap_or(record.length)
}

/// Whose call a stack is, leaf first.
fn origin(frames: &[Frame], mut is_allocator: impl FnMut(Frame) -> bool) -> Origin {
    let mut files = frames.chunk_by(|a, b| a.module == b.module);
    let nearest = files.by_ref().take(2).flatten();
    match nearest.copied().any(&mut is_allocator) {
        true => Origin::Allocator,
        false => Origin::Direct,
    }
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
        origin(&frames, |frame| frame.module == JEMALLOC || frame.offset == ALLOCATES)
    }

    #[test]
    fn the_nearest_frames_tell_whose_call_it_is() {
        let wrapper = (LIBC, 1);
        // mmap ← sysmalloc ← malloc ← main
        let glibc = [wrapper, (LIBC, 2), (LIBC, ALLOCATES), (PROGRAM, 1)];
        assert_eq!(of(&glibc), Origin::Allocator);
        // mmap ← pages_map ← arena ← main
        assert_eq!(of(&[wrapper, (JEMALLOC, 1), (PROGRAM, 1)]), Origin::Allocator);
        // An allocator linked in.
        let linked = [wrapper, (PROGRAM, 2), (PROGRAM, ALLOCATES), (PROGRAM, 1)];
        assert_eq!(of(&linked), Origin::Allocator);
        assert_eq!(of(&[(PROGRAM, 2), (PROGRAM, ALLOCATES), (PROGRAM, 1)]), Origin::Allocator);
        // mmap ← main, mmap ← pthread_create ← main
        assert_eq!(of(&[wrapper, (PROGRAM, 1)]), Origin::Direct);
        assert_eq!(of(&[wrapper, (LIBC, 2), (PROGRAM, 1)]), Origin::Direct);
        // Something that malloc was told to call is no allocator: mmap ← hook ← malloc.
        let hook = [wrapper, (PROGRAM, 1), (LIBC, ALLOCATES), (PROGRAM, 2)];
        assert_eq!(of(&hook), Origin::Direct);
        assert_eq!(of(&[]), Origin::Direct);
    }

    #[test]
    fn huge_pages_are_whole() {
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
