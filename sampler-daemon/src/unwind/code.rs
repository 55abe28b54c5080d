//! The code of modules: functions, and the code bytes.

use super::module::{Frame, ModuleId, ModuleKind};
use super::modules::Modules;
use crate::inspect::allocator::text::AllocatorText;
use std::os::unix::fs::FileExt as _;

impl Modules {
    /// The address of a frame in its file's own address space. With it, the first address of the
    /// frame's function, if call frame information gives one.
    pub fn function(&mut self, frame: Frame) -> Option<(u64, Option<u64>)> {
        let svma = self.headers(frame.module)?.svma(frame.offset)?;
        let start = self.cfi(frame.module).and_then(|cfi| cfi.function(svma));
        Some((svma, start))
    }

    /// The code of a module that belongs to an allocator; none if the module has no file.
    pub fn allocator_text(&self, id: ModuleId) -> AllocatorText {
        let module = self.get(id);
        match &module.kind {
            ModuleKind::File(file) => AllocatorText::read(file, &module.path),
            _ => AllocatorText::default(),
        }
    }

    /// Copies bytes of a module from a file offset; false if the bytes cannot be read.
    pub(super) fn read_code(&self, id: ModuleId, offset: u64, into: &mut [u8]) -> bool {
        match &self.get(id).kind {
            ModuleKind::File(file) => file.read_exact_at(into, offset).is_ok(),
            ModuleKind::Vdso(bytes) => {
                let range = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
                let code = range.and_then(|rest| rest.get(..into.len()));
                code.inspect(|code| into.copy_from_slice(code)).is_some()
            }
            ModuleKind::Jit(..)
            | ModuleKind::Python(_)
            | ModuleKind::Closed
            | ModuleKind::Unknown => false,
        }
    }
}
