//! The stack in a record, and how it becomes frames.

use super::ingest::Ingest;
use super::stack_cache::Unwound;
use crate::pipeline::processes::process::ProfiledProcess;
use crate::store::StackId;
use crate::store::stacks::{Note, StackFrame};
use crate::unwind::{Address, Frame, ModuleId, ModuleKind, Registers, StackMemory, UnwindEnd};
use sampler_common::counters::Outcome;
use sampler_common::wire::{AllocationRecord, CachedCall, Role};

/// The form in which a record has its stack.
#[derive(Clone, Copy)]
pub(in crate::pipeline) enum CapturedStack<'a> {
    /// A copy that begins at the stack pointer.
    Snapshot(&'a [u8]),
    /// Return addresses.
    Frames(&'a [u8]),
    /// The id of a cached stack.
    Known(u64),
}

/// Last address of user space with four levels of page tables. The kernel gives a program higher
/// addresses only on request.
const USER_END: u64 = (1 << 47) - 1;

impl Ingest {
    /// Fills `frames`, the probed function first.
    pub(in crate::pipeline) fn walk(
        &mut self,
        profiled: &mut ProfiledProcess,
        record: &AllocationRecord,
        captured: CapturedStack<'_>,
    ) -> UnwindEnd {
        self.frames.clear();
        let Some(image) = self.image(profiled, record.space.generation, record.time_ns) else {
            self.frames.push(Frame { module: ModuleId::UNKNOWN, offset: record.function });
            return UnwindEnd::NoMapping;
        };
        // A USDT probe lies inside the leaf. For a probed call, the function is the leaf, and the
        // stack begins at its caller.
        let is_call = record.role != Role::OtelAlloc as u32;
        if is_call {
            let function = image.resolve(&mut self.modules, record.function);
            self.frames.push(function);
        }
        let registers = Registers { ip: record.ip, sp: record.sp, bp: record.bp };
        let first = if is_call { Address::Return(record.ip) } else { Address::Exact(record.ip) };
        let stack = match captured {
            CapturedStack::Snapshot(stack) => stack,
            CapturedStack::Frames(addresses) => {
                image.forget_stack_pointers();
                return walked(addresses, is_call, |address| {
                    let frame = image.code(&mut self.modules, address);
                    self.frames.extend(frame);
                    frame.is_some()
                });
            }
            CapturedStack::Known(id) => {
                // An id that is no longer valid has no words.
                let words = self.stack_cache.get(id).map_or(&[][..], |known| &known.words);
                let (modules, frames) = (&mut self.modules, &mut self.frames);
                return image.unwind_words(first, modules, registers, words, frames);
            }
        };
        let hijacked = hijacked(record, stack).filter(|(_, word)| {
            let module = image.resolve(&mut self.modules, *word).module;
            let module = self.modules.get(module);
            module.path == "[uprobes]" || matches!(module.kind, ModuleKind::Unknown)
        });
        let hijacked = hijacked.map(|(slot, _)| (slot, record.hijacked_ip));
        let memory = StackMemory { start: record.sp, bytes: stack, hijacked };
        image.unwind_from(first, &mut self.modules, registers, memory, &mut self.frames)
    }

    /// The stack that a record names by its id; fills `frames`. `None` if the process has mapped
    /// other code meanwhile.
    pub(super) fn cached_stack(
        &mut self,
        profiled: &mut ProfiledProcess,
        record: &AllocationRecord,
        id: u64,
    ) -> Option<StackId> {
        self.outcomes.add(Outcome::StackCacheHit, 1);
        let image = self.image(profiled, record.space.generation, record.time_ns)?;
        image.keep_fresh(&mut self.modules);
        let view = image.view();
        if record.space.generation == profiled.generation {
            self.stack_cache.see(record.space, view);
        }
        let stack = self.stack_cache.get(id).filter(|known| known.view == view)?.stack;
        self.frames.clear();
        let frames = self.stacks.get(stack).iter().map(|number| self.stacks.frame(*number));
        self.frames.extend(frames.filter_map(StackFrame::code));
        Some(stack)
    }

    /// Adds an unwound stack to the stack cache if it is complete.
    pub(super) fn add_to_stack_cache(
        &mut self,
        profiled: &ProfiledProcess,
        record: &AllocationRecord,
        captured: CapturedStack<'_>,
        end: UnwindEnd,
        stack: StackId,
    ) {
        let Some(image) = &profiled.image else { return };
        let AllocationRecord { space, function, ip, sp, bp, stack_bytes, .. } = *record;
        self.stack_cache.see(space, image.view());
        let CapturedStack::Snapshot(_) = captured else { return };
        if end == UnwindEnd::Complete && stack != StackId::TABLE_FULL {
            let call = CachedCall { space, function, ip, sp };
            let (evidence, view) = (image.evidence(), image.view());
            self.stack_cache.add_unwound(&Unwound { call, bp, evidence, stack_bytes, stack, view });
        }
    }
}

/// The outcome that counts a stack's end, and the note at its root if frames are or may be missing.
pub(in crate::pipeline) fn ending(end: UnwindEnd) -> (Outcome, Option<Note>) {
    match end {
        UnwindEnd::Complete => (Outcome::UnwindComplete, None),
        UnwindEnd::Guessed => (Outcome::UnwindGuessed, Some(Note::Guessed)),
        UnwindEnd::Truncated => (Outcome::UnwindTruncated, Some(Note::Truncated)),
        UnwindEnd::Failed => (Outcome::UnwindFailed, Some(Note::NoUnwindInformation)),
        UnwindEnd::NoMapping => (Outcome::NoMapping, Some(Note::Unmapped)),
    }
}

/// The slot that may hold the kernel's trampoline, and its word in the snapshot.
fn hijacked(record: &AllocationRecord, stack: &[u8]) -> Option<(u64, u64)> {
    let at = record.hijacked_slot.checked_sub(record.sp)?;
    let word = stack.get(usize::try_from(at).ok()?..)?.first_chunk()?;
    Some((record.hijacked_slot, u64::from_ne_bytes(*word)))
}

/// Passes on the addresses of a stack that the kernel has walked by frame pointers. Addresses lie
/// inside of the calls. The walk ends where `each` rejects an address as no code.
fn walked(addresses: &[u8], is_call: bool, mut each: impl FnMut(u64) -> bool) -> UnwindEnd {
    for (number, address) in addresses.chunks_exact(8).enumerate() {
        let address = u64::from_ne_bytes(address.try_into().unwrap_or_default());
        // Without frame pointers rbp holds any value, and the addresses it leads to are no callers.
        if address == 0 || address > USER_END {
            return UnwindEnd::Failed;
        }
        let is_exact = number == 0 && !is_call;
        // An address that is no code would make a new stack each time, until the table is full.
        if !each(if is_exact { address } else { address.wrapping_sub(1) }) {
            return UnwindEnd::Failed;
        }
    }
    let full = addresses.len() >= sampler_common::limits::MAX_KERNEL_FRAMES * 8;
    // Code without frame pointers in the stack hides a caller, undetectably.
    if full { UnwindEnd::Truncated } else { UnwindEnd::Guessed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_where_there_is_no_code() {
        let bytes = |all: [u64; 4]| all.map(u64::to_ne_bytes).concat();
        let walk = |all, is_call| {
            let mut frames = Vec::new();
            let end = walked(&bytes(all), is_call, |address| {
                let is_code = address < 0x5000;
                frames.extend(is_code.then_some(address));
                is_code
            });
            (frames, end)
        };
        let whole = (vec![0x0fff, 0x1fff, 0x2fff, 0x3fff], UnwindEnd::Guessed);
        assert_eq!(walk([0x1000, 0x2000, 0x3000, 0x4000], true), whole);
        assert_eq!(walk([0x1000, 0x2000, 0x3000, 0x4000], false).0[0], 0x1000);
        // Without frame pointers rbp holds any value.
        let cut = (vec![0x0fff, 0x1fff], UnwindEnd::Failed);
        assert_eq!(walk([0x1000, 0x2000, 0x7_0000, 0x4000], true), cut);
        assert_eq!(walk([0x1000, 0x2000, 0, 0x4000], true), cut);
        assert_eq!(walk([0x1000, 0x2000, 1 << 47, 0x4000], true), cut);
    }
}
