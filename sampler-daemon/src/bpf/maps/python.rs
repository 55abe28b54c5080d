//! Where the kernel side finds Python frames (map `PYTHON`).

use super::shared::pages;
use crate::bpf::sys::SharedMemory;
use sampler_common::wire::PythonRuntime;
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::SeqCst;

/// The map `PYTHON`.
#[derive(Debug)]
pub struct PythonRuntimes(SharedMemory);

impl PythonRuntimes {
    pub(in crate::bpf) fn map(fd: BorrowedFd<'_>, slots: u32) -> io::Result<PythonRuntimes> {
        let bytes = pages(slots as usize * size_of::<PythonRuntime>());
        Ok(PythonRuntimes(SharedMemory::map(fd, bytes, 0, true)?))
    }

    /// Sets where the process in a slot has its Python frames, from now on.
    pub fn set(&mut self, slot: u32, runtime: &PythonRuntime) {
        self.clear(slot);
        let PythonRuntime {
            generation,
            current,
            interpreters,
            next,
            lock,
            holder,
            locked,
            thread_id,
            frame,
            indirect,
            frame_bytes,
            before,
            code,
            instruction,
            previous,
            boundary,
            code_words,
            versioned,
        } = *runtime;
        let fields = [
            (offset_of!(PythonRuntime, current), current),
            (offset_of!(PythonRuntime, interpreters), interpreters),
            (offset_of!(PythonRuntime, next), next),
            (offset_of!(PythonRuntime, lock), lock),
            (offset_of!(PythonRuntime, holder), holder),
            (offset_of!(PythonRuntime, locked), locked),
            (offset_of!(PythonRuntime, thread_id), thread_id),
            (offset_of!(PythonRuntime, frame), frame),
            (offset_of!(PythonRuntime, indirect), indirect),
            (offset_of!(PythonRuntime, code), code),
            (offset_of!(PythonRuntime, instruction), instruction),
            (offset_of!(PythonRuntime, previous), previous),
            (offset_of!(PythonRuntime, boundary), boundary),
            (offset_of!(PythonRuntime, frame_bytes), frame_bytes),
            (offset_of!(PythonRuntime, before), before),
            (offset_of!(PythonRuntime, code_words), code_words),
            (offset_of!(PythonRuntime, versioned), versioned),
            // The generation is last: whoever sees the generation sees the other fields.
            (offset_of!(PythonRuntime, generation), generation),
        ];
        fields.into_iter().for_each(|(field, value)| self.store(slot, field, value));
    }

    /// Marks a slot as a process without Python frames.
    pub fn clear(&mut self, slot: u32) {
        self.store(slot, offset_of!(PythonRuntime, generation), 0);
    }

    fn store(&self, slot: u32, field: usize, value: u64) {
        let at = slot as usize * size_of::<PythonRuntime>() + field;
        self.0.atomic_u64(at).store(value, SeqCst);
    }
}
