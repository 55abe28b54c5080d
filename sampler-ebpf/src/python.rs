//! The Python frames of a sample, sent in a record of their own before the sample's record.
//!
//! The interpreter has a pointer to the state of the thread that runs it. The state is used only if
//! its thread id is the current thread's. If interpreters have locks of their own, the interpreter
//! is searched whose lock the current thread holds. Then a bounded number of frames are copied,
//! starting there. The kernel does not interpret the frames: see
//! `sampler_common::wire::PythonRecord`.

use crate::{live, maps, record, settings, stack_bounds};
use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::generated::bpf_probe_read_user as read_user;
use aya_ebpf::helpers::bpf_get_current_task;
use core::mem::MaybeUninit;
use core::ptr::{read_volatile, write_volatile};
use sampler_common::counters::Outcome;
use sampler_common::wire::{
    MAX_PYTHON_FRAMES, MAX_PYTHON_INTERPRETERS, PYTHON_BYTES_OFFSET, PYTHON_CODE_WORDS, PYTHON_CUT,
    PYTHON_DIRECT, PYTHON_FRAME_BYTES, PYTHON_SCRATCH_WORDS, PYTHON_SEVERAL, PYTHON_SHARED,
    PYTHON_TABLE_MASK, PYTHON_TABLE_WORDS, PythonFrame, PythonRecord, PythonRuntime, RecordKind,
    Space, python_mixed,
};

/// Sends the Python frames of a sample if its process runs Python. Returns 1 if the process runs
/// Python, else 0. `space` is a `Space::word`.
#[inline(never)]
#[unsafe(export_name = "python_send")]
pub extern "C" fn send(space: u64, sample: u64) -> u64 {
    let (slot, generation) = (space as u32, space >> 32);
    let Some(runtime) = maps::PYTHON.get_ptr(slot) else { return 0 };
    // SAFETY: a field of a map value, which the daemon may be writing.
    if unsafe { read_volatile(&raw const (*runtime).generation) } != generation || generation == 0 {
        return 0;
    }
    match newest_frame(runtime, slot) {
        Some((frame, flags)) => copy(frame, space, sample, flags),
        None => {
            if let Some(totals) = maps::TOTALS.get_ptr_mut(slot) {
                live::count(totals, Outcome::PythonElsewhere);
            }
        }
    }
    1
}

/// A field of the runtime's description.
macro_rules! field {
    ($runtime:expr, $name:ident) => {
        // SAFETY: a field of a map value, which the daemon may be writing.
        unsafe { read_volatile(&raw const (*$runtime).$name) }
    };
}

/// The newest frame of this thread, and flags of the record; `None` if the thread does not run the
/// interpreter.
#[inline(always)]
fn newest_frame(runtime: *const PythonRuntime, slot: u32) -> Option<(u64, u32)> {
    // One variable takes all words that are read: the stack has little room.
    let read = &mut 0;
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    // glibc and musl give a thread the address of its own data as its id.
    let thread = stack_bounds::member(task, settings::task_fs_base())?;
    let newest = word(read, field!(runtime, interpreters))?;
    let is_one = word(read, newest.wrapping_add(field!(runtime, next)))? == 0;
    let state = if is_one || field!(runtime, lock) == PYTHON_SHARED {
        word(read, field!(runtime, current))?
    } else {
        state_of_holder(slot, newest, thread)
    };
    let id = word(read, state.wrapping_add(field!(runtime, thread_id)))?;
    if state == 0 || thread == 0 || id != thread {
        return None;
    }
    let frame = word(read, state.wrapping_add(field!(runtime, frame)))?;
    let frame = match field!(runtime, indirect) {
        PYTHON_DIRECT => frame,
        offset => word(read, frame.wrapping_add(offset))?,
    };
    (frame != 0).then_some((frame, if is_one { 0 } else { PYTHON_SEVERAL }))
}

/// The state of a thread in the interpreter whose lock the thread holds; 0 if there is none among
/// the newest interpreters.
///
/// The holder of a free lock is the thread that took the lock last. That thread may hold the lock
/// of another interpreter now.
#[inline(never)]
#[unsafe(export_name = "python_state")]
extern "C" fn state_of_holder(slot: u32, newest: u64, thread: u64) -> u64 {
    let Some(runtime) = maps::PYTHON.get_ptr(slot) else { return 0 };
    let (mut interpreter, read) = (newest, &mut 0);
    for _ in 0..MAX_PYTHON_INTERPRETERS {
        // A word that cannot be read is 0.
        let mut at = |base: u64, offset: u64| word(read, base.wrapping_add(offset)).unwrap_or(0);
        let lock = at(interpreter, field!(runtime, lock));
        let state = at(lock, field!(runtime, holder));
        let is_locked = at(lock, field!(runtime, locked)) as u32 != 0;
        if is_locked && at(state, field!(runtime, thread_id)) == thread {
            return state;
        }
        interpreter = at(interpreter, field!(runtime, next));
        if interpreter == 0 {
            return 0;
        }
    }
    0
}

/// Bits of a pointer to an object that some Python versions use as tags.
const TAG: u64 = 7;

/// Copies frames, starting with `frame`. `flags` is those of the record without [`PYTHON_CUT`].
#[inline(always)]
fn copy(mut frame: u64, space: u64, sample: u64, flags: u32) {
    // A record without room is dropped: the sample keeps its native frames.
    let Some(mut entry) = maps::RING.reserve::<PythonRecord>(0) else { return };
    record::count_sent(space as u32, size_of::<PythonRecord>());
    let to: *mut PythonRecord = MaybeUninit::as_mut_ptr(&mut entry);
    // SAFETY: fields of the reserved record.
    unsafe {
        (&raw mut (*to).kind).write(RecordKind::Python as u32);
        (&raw mut (*to).count).write_volatile(0);
        (&raw mut (*to).space).write(Space { slot: space as u32, generation: (space >> 32) as u32 });
        (&raw mut (*to).sample).write(sample);
        (&raw mut (*to).flags).write_volatile(flags | PYTHON_CUT);
        (&raw mut (*to).pad).write(0);
    }
    for index in 0..MAX_PYTHON_FRAMES {
        let previous = frame_at(to, space as u32, frame, index as u64);
        // SAFETY: a field of the reserved record.
        unsafe { (&raw mut (*to).count).write_volatile(index as u32 + 1) };
        if previous == 0 {
            // SAFETY: a field of the reserved record.
            unsafe { (&raw mut (*to).flags).write_volatile(flags) };
            break;
        }
        frame = previous;
    }
    entry.submit(BPF_RB_NO_WAKEUP as u64);
}

/// Copies a frame to its place in the record, all 0 if the frame cannot be read. Returns the
/// address of the caller's frame.
#[inline(never)]
#[unsafe(export_name = "python_frame_at")]
extern "C" fn frame_at(to: *mut PythonRecord, slot: u32, frame: u64, index: u64) -> u64 {
    let Some(runtime) = maps::PYTHON.get_ptr(slot) else { return 0 };
    if to.is_null() || index >= MAX_PYTHON_FRAMES as u64 {
        return 0;
    }
    // SAFETY: the index is less than the array's length.
    let place = unsafe { (&raw mut (*to).frames).cast::<PythonFrame>().add(index as usize) };
    let scratch = scratch(to);
    let bytes = field!(runtime, frame_bytes) & PYTHON_FRAME_BYTES;
    read(scratch, bytes as u32, frame);
    let at = |offset: u64| {
        // SAFETY: the masked index is less than the number of words of the scratch.
        unsafe { read_volatile(scratch.add((offset >> 3) as usize & (PYTHON_SCRATCH_WORDS - 1))) }
    };
    let code = at(field!(runtime, code)) & !TAG;
    // SAFETY: a field of a place in the reserved record.
    unsafe { write_volatile(&raw mut (*place).code, code) };
    // SAFETY: as above.
    unsafe { write_volatile(&raw mut (*place).address, frame) };
    let instruction = at(field!(runtime, instruction));
    // SAFETY: as above.
    unsafe { write_volatile(&raw mut (*place).instruction, instruction) };
    let boundary = at(field!(runtime, boundary));
    // SAFETY: as above.
    unsafe { write_volatile(&raw mut (*place).boundary, boundary) };
    let previous = at(field!(runtime, previous));
    let fingerprint = fingerprint(to, code.wrapping_add(field!(runtime, code_words)));
    // SAFETY: as above.
    unsafe { write_volatile(&raw mut (*place).fingerprint, fingerprint) };
    previous
}

/// The fingerprint of the code object whose words are at address `words`. Words that cannot be read
/// count as zeros.
#[inline(never)]
fn fingerprint(to: *mut PythonRecord, words: u64) -> u64 {
    let scratch = scratch(to);
    // SAFETY: the index is less than the number of words of the scratch.
    let word = |index: usize| unsafe { read_volatile(scratch.add(index)) };
    // The sum stays in memory. Otherwise the compiler would load all words into registers first,
    // and has no room for so many.
    // SAFETY: the last word of the scratch; `read` never writes to it.
    let sum = unsafe { scratch.add(PYTHON_SCRATCH_WORDS - 1) };
    // SAFETY: as above.
    let mix = |word: u64| unsafe { write_volatile(sum, python_mixed(read_volatile(sum), word)) };
    // SAFETY: as above.
    unsafe { write_volatile(sum, 1) };
    read(scratch, PYTHON_CODE_WORDS as u32 * 8, words);
    (0..PYTHON_CODE_WORDS).for_each(|index| mix(word(index)));
    // Length, hash and contents.
    let length_at = word(PYTHON_CODE_WORDS - 1).wrapping_add(PYTHON_BYTES_OFFSET);
    read(scratch, 8, length_at);
    let length = word(0);
    mix(length);
    for index in 0..PYTHON_TABLE_WORDS {
        // SAFETY: as above.
        unsafe { write_volatile(scratch.add(index), 0) };
    }
    read(scratch, (length & PYTHON_TABLE_MASK) as u32, length_at.wrapping_add(16));
    (0..PYTHON_TABLE_WORDS).for_each(|index| mix(word(index)));
    word(PYTHON_SCRATCH_WORDS - 1)
}

#[inline(always)]
fn scratch(to: *mut PythonRecord) -> *mut u64 {
    // SAFETY: a field of the reserved record.
    unsafe { &raw mut (*to).scratch }.cast()
}

/// Reads bytes of the process to the scratch. The kernel writes zeros for bytes that cannot be
/// read. So no branch is needed, of which the verifier would follow both ways.
#[inline(always)]
fn read(scratch: *mut u64, bytes: u32, address: u64) {
    // SAFETY: the scratch has 128 bytes, and all masks and constants are less; the helper may fail
    // on the source.
    unsafe { read_user(scratch.cast(), bytes, address as *const _) };
}

#[inline(always)]
fn word(into: &mut u64, address: u64) -> Option<u64> {
    // SAFETY: the target is a word; the helper may fail on the source.
    let failed = unsafe { read_user((&raw mut *into).cast(), 8, address as *const _) };
    // SAFETY: a reference; volatile, since the compiler does not see that it was written.
    (failed == 0).then(|| unsafe { read_volatile(into) })
}
