//! The Python frames of a sample, sent in a record of their own before the sample's record.
//!
//! The interpreter has a pointer to the state of the thread that runs it. The state is used only if
//! its thread id is the current thread's. If interpreters have separate locks, the code
//! finds the interpreter whose lock the current thread holds. Then a bounded number of frames are
//! copied, starting there. The kernel does not interpret the frames: see
//! `sampler_common::wire::PythonRecord`.

use crate::{atomic, live, maps, record, settings, stack_bounds};
use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::generated::bpf_probe_read_user as read_user;
use aya_ebpf::helpers::bpf_get_current_task;
use core::mem::offset_of;
use core::ptr::{read_volatile, write_volatile};
use core::slice;
use sampler_common::counters::Outcome;
use sampler_common::wire::{
    MAX_PYTHON_FRAMES, MAX_PYTHON_INTERPRETERS, PYTHON_BLOCK_MASK, PYTHON_BYTES_OFFSET,
    PYTHON_CODE_WORDS, PYTHON_CUT, PYTHON_DIRECT, PYTHON_FRAME_BYTES, PYTHON_SCRATCH_WORDS,
    PYTHON_SEVERAL, PYTHON_SHARED, PYTHON_TABLE_WORDS, PYTHON_VERSION_WORD, PythonFrame,
    PythonRecord, PythonRuntime, PythonScratch, RecordKind, Space, python_has_version,
    python_mixed, python_table_words,
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

/// Sends frames, starting with `frame`. `flags` is those of the record without [`PYTHON_CUT`].
///
/// Without a record, the sample keeps its native frames, and is counted: if a program that was
/// preempted on this CPU makes its record, or if the ring has no room.
#[inline(always)]
fn copy(mut frame: u64, space: u64, sample: u64, flags: u32) {
    let Some(scratch) = maps::PYTHON_SCRATCH.get_ptr_mut(0) else { return };
    // SAFETY: a field of a map value.
    let taken = unsafe { &raw mut (*scratch).taken };
    if !atomic::exchange(taken, 0, 1) {
        return;
    }
    // SAFETY: a field of a map value, which is this program's from now on.
    let to = unsafe { &raw mut (*scratch).record };
    // SAFETY: as above.
    unsafe {
        (&raw mut (*to).kind).write(RecordKind::Python as u32);
        (&raw mut (*to).count).write_volatile(0);
        (&raw mut (*to).space).write(Space { slot: space as u32, generation: (space >> 32) as u32 });
        (&raw mut (*to).sample).write(sample);
        (&raw mut (*to).flags).write_volatile(flags | PYTHON_CUT);
        (&raw mut (*to).pad).write(0);
        (&raw mut (*scratch).block_frame).write_volatile(0);
    }
    for index in 0..MAX_PYTHON_FRAMES {
        let previous = frame_at(scratch, space as u32, frame, index as u64);
        // SAFETY: as above.
        unsafe { (&raw mut (*to).count).write_volatile(index as u32 + 1) };
        if previous == 0 {
            // SAFETY: as above.
            unsafe { (&raw mut (*to).flags).write_volatile(flags) };
            break;
        }
        frame = previous;
    }
    output(to, space as u32);
    // SAFETY: as above; the memory is free for another program from now on.
    unsafe { write_volatile(taken, 0) };
}

/// Copies the valid part of a record to the ring, if the ring has room.
#[inline(always)]
fn output(record: *const PythonRecord, slot: u32) {
    // SAFETY: a field of the record. The verifier needs the bound of a number that it reads anew.
    let count = unsafe { read_volatile(&raw const (*record).count) } as usize;
    if count > MAX_PYTHON_FRAMES {
        return;
    }
    let bytes = offset_of!(PythonRecord, frames) + count * size_of::<PythonFrame>();
    // SAFETY: the record has room for the frames.
    let valid = unsafe { slice::from_raw_parts(record.cast::<u8>(), bytes) };
    record::count_sent(slot, bytes);
    if maps::RING.output::<[u8]>(valid, u64::from(BPF_RB_NO_WAKEUP)).is_err() {
        record::count_sent(slot, bytes.wrapping_neg());
    }
}

/// Copies a frame to its place in the record, all 0 if the frame cannot be read. Returns the
/// address of the caller's frame.
#[inline(never)]
#[unsafe(export_name = "python_frame_at")]
extern "C" fn frame_at(scratch: *mut PythonScratch, slot: u32, frame: u64, index: u64) -> u64 {
    let Some(runtime) = maps::PYTHON.get_ptr(slot) else { return 0 };
    if scratch.is_null() || index >= MAX_PYTHON_FRAMES as u64 {
        return 0;
    }
    // SAFETY: the index is less than the array's length.
    let place = unsafe {
        (&raw mut (*scratch).record.frames).cast::<PythonFrame>().add(index as usize)
    };
    let offset = in_block(scratch, runtime, frame);
    let block = block(scratch);
    let at = |field: u64| {
        let word = (offset & PYTHON_BLOCK_MASK) + (field & PYTHON_FRAME_BYTES);
        // SAFETY: the sum of both masks is less than the length of the block.
        unsafe { read_volatile(block.byte_add(word as usize)) }
    };
    let code = at(field!(runtime, code)) & !TAG;
    // SAFETY: a field of a place in the record.
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
    // SAFETY: a field of the record.
    let is_one = unsafe { read_volatile(&raw const (*scratch).record.flags) } & PYTHON_SEVERAL == 0;
    let is_versioned = is_one && field!(runtime, versioned) != 0;
    let fingerprint = fingerprint(scratch, code.wrapping_add(field!(runtime, code_words)), is_versioned);
    // SAFETY: as above.
    unsafe { write_volatile(&raw mut (*place).fingerprint, fingerprint) };
    previous
}

/// The offset of a frame in the block, which is filled if it does not contain the
/// frame. A read costs more than most of its bytes, so the page before the frame is read too.
#[inline(never)]
fn in_block(scratch: *mut PythonScratch, runtime: *const PythonRuntime, frame: u64) -> u64 {
    // SAFETY: a field of the scratch memory.
    let last = unsafe { &raw mut (*scratch).block_frame };
    // SAFETY: as above.
    let offset = frame.wrapping_sub(block_start(runtime, unsafe { read_volatile(last) }));
    // SAFETY: as above.
    if offset <= PYTHON_BLOCK_MASK && frame <= unsafe { read_volatile(last) } {
        return offset;
    }
    let start = block_start(runtime, frame);
    let offset = frame.wrapping_sub(start) & PYTHON_BLOCK_MASK;
    let bytes = offset + (field!(runtime, frame_bytes) & PYTHON_FRAME_BYTES);
    read(block(scratch), bytes as u32, start);
    // SAFETY: as above.
    unsafe { write_volatile(last, frame) };
    offset
}

/// The address from which on a block is read that ends with a frame. No other page than the frame's
/// is read: it may not be there, and the attempt takes longer than all other reads.
#[inline(always)]
fn block_start(runtime: *const PythonRuntime, frame: u64) -> u64 {
    let before = field!(runtime, before) & PYTHON_BLOCK_MASK;
    let in_page = frame & 0xfff;
    frame.wrapping_sub(if before < in_page { before } else { in_page })
}

/// The fingerprint of the code object whose words are at `address`. Words that cannot be read
/// count as zeros. The line table has no part in it if `is_versioned` and the code object has a
/// version.
#[inline(never)]
fn fingerprint(scratch: *mut PythonScratch, address: u64, is_versioned: bool) -> u64 {
    // SAFETY: a field of the scratch memory.
    let words = unsafe { &raw mut (*scratch).words }.cast::<u64>();
    read(words, PYTHON_CODE_WORDS as u32 * 8, address);
    // SAFETY: all indexes are less than the number of words of the scratch.
    let word = |index: usize| unsafe { read_volatile(words.add(index)) };
    let mut count = PYTHON_CODE_WORDS as u64;
    if !is_versioned || !python_has_version(word(PYTHON_VERSION_WORD)) {
        let table = word(PYTHON_CODE_WORDS - 1).wrapping_add(PYTHON_BYTES_OFFSET);
        // SAFETY: as above.
        let object = unsafe { words.add(PYTHON_CODE_WORDS) };
        read(object, PYTHON_TABLE_WORDS as u32 * 8, table);
        // SAFETY: as above. The hash changes when it is computed for the first time.
        unsafe { write_volatile(object.add(1), 0) };
        count += python_table_words(word(PYTHON_CODE_WORDS));
    }
    let mut sum = 1;
    // The compiler does not know the number. Otherwise it would load all words into registers
    // first, and has no room for so many.
    for index in 0..count {
        sum = python_mixed(sum, word(index as usize & (PYTHON_SCRATCH_WORDS - 1)));
    }
    sum
}

#[inline(always)]
fn block(scratch: *mut PythonScratch) -> *mut u64 {
    // SAFETY: a field of the scratch memory.
    unsafe { &raw mut (*scratch).block }.cast()
}

/// Reads bytes of the process to scratch memory. The kernel writes zeros for bytes that cannot
/// be read. So no branch is needed, of which the verifier would follow both ways.
#[inline(always)]
fn read(into: *mut u64, bytes: u32, address: u64) {
    // SAFETY: the target has room for what the callers read; the helper may fail on the source.
    unsafe { read_user(into.cast(), bytes, address as *const _) };
}

#[inline(always)]
fn word(into: &mut u64, address: u64) -> Option<u64> {
    // SAFETY: the target is a word; the helper may fail on the source.
    let failed = unsafe { read_user((&raw mut *into).cast(), 8, address as *const _) };
    // SAFETY: a reference; volatile, since the compiler does not see that it was written.
    (failed == 0).then(|| unsafe { read_volatile(into) })
}
