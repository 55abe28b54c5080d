//! The code of modules: functions, where calls in them can be counted, and the bytes themselves.

use super::module::{Frame, ModuleId, ModuleKind};
use super::modules::Modules;
use crate::target::inside::AllocatorCode;
use crate::target::placement;
use crate::target::spots::Spot;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Code of a function that is read at most to find a place in it: what is larger is mostly an interpreter's loop, and goes uncounted.
const MAX_CODE: usize = 256 * 1024;

impl Modules {
    /// Where a frame lies in its file's own address space, and the first address of its function, where call frame
    /// information says it.
    pub fn function(&mut self, frame: Frame) -> Option<(u64, Option<u64>)> {
        let svma = self.headers(frame.module)?.svma(frame.offset)?;
        let start = self.cfi(frame.module).and_then(|cfi| cfi.function(svma));
        Some((svma, start))
    }

    /// The first byte of the function that a frame lies in, as a frame; `None` where nothing says it.
    pub fn first(&mut self, frame: Frame) -> Option<Frame> {
        let svma = self.headers(frame.module)?.svma(frame.offset)?;
        let extent = self.cfi(frame.module)?.extent(svma)?;
        let first = Frame { offset: frame.offset.checked_sub(svma - extent.start)?, ..frame };
        (self.headers(frame.module)?.svma(first.offset)? == extent.start).then_some(first)
    }

    /// Where calls of a function can be counted, whose first byte this frame is; `None`: nowhere in it, or only dearly.
    pub fn spot(&mut self, first: Frame, has_shadow_stack: bool) -> Option<Spot> {
        let (code, svma) = self.code_of(first)?;
        self.spot_in(first, placement::place_counter(&code, svma, has_shadow_stack)?)
    }

    /// Where the call that this frame is in can be counted; only for processes without a shadow stack. `None`: it is no call, or no cheap one.
    pub fn call_spot(&mut self, frame: Frame) -> Option<Spot> {
        let first = self.first(frame)?;
        let (code, _) = self.code_of(first)?;
        let end = usize::try_from(frame.offset - first.offset).ok()? + 1;
        self.spot_in(first, placement::place_call(&code, end)?)
    }

    /// So many bytes behind the first one of a function.
    fn spot_in(&self, first: Frame, displacement: u32) -> Option<Spot> {
        let module = self.get(first.module);
        let ModuleKind::File(file) = &module.kind else { return None };
        Spot::new(Arc::clone(file), &module.path, first.offset + u64::from(displacement))
    }

    /// The code of a function whose first byte this frame is, and its address in the file's own address space.
    fn code_of(&mut self, first: Frame) -> Option<(Vec<u8>, u64)> {
        let svma = self.headers(first.module)?.svma(first.offset)?;
        let extent = self.cfi(first.module)?.extent(svma)?;
        let bytes = usize::try_from(extent.end - extent.start).ok()?;
        let mut code = vec![0; bytes.min(MAX_CODE)];
        let is_read = code.len() == bytes && self.read_code(first.module, first.offset, &mut code);
        is_read.then_some((code, svma))
    }

    /// What of a module is an allocator's; nothing where it has no file.
    pub fn allocator_code(&self, id: ModuleId) -> AllocatorCode {
        let module = self.get(id);
        match &module.kind {
            ModuleKind::File(file) => AllocatorCode::read(file, &module.path),
            _ => AllocatorCode::default(),
        }
    }

    /// Copies bytes of a module from a file offset; false if they are not to be had.
    pub(super) fn read_code(&self, id: ModuleId, offset: u64, into: &mut [u8]) -> bool {
        match &self.get(id).kind {
            ModuleKind::File(file) => file.read_exact_at(into, offset).is_ok(),
            ModuleKind::Vdso(bytes) => {
                let range = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
                let code = range.and_then(|rest| rest.get(..into.len()));
                code.inspect(|code| into.copy_from_slice(code)).is_some()
            }
            ModuleKind::Jit(..) | ModuleKind::Unknown => false,
        }
    }
}
