//! The generated code of one program image as modules. Module number n has each address's n-th
//! name.

use super::GeneratedCode;
use crate::unwind::module::{Frame, ModuleId};
use crate::unwind::modules::Modules;
use sampler_common::share::Holder;
use std::sync::Arc;

/// Generated code and its modules.
pub(in crate::unwind) struct Jit {
    by: Holder<u32>,
    code: Arc<GeneratedCode>,
    modules: Vec<ModuleId>,
}

impl Jit {
    /// Reads the names that a process has given to its code.
    pub(in crate::unwind) fn of(by: Holder<u32>, modules: &mut Modules) -> Jit {
        Jit { by, code: modules.generated_code(by), modules: Vec::new() }
    }

    /// The modules of the code.
    pub(in crate::unwind) fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.modules.iter().copied()
    }

    /// Reads new names.
    pub(in crate::unwind) fn refresh(&self) {
        self.code.refresh();
    }

    /// The frame at an address, by the time of its sample.
    pub(in crate::unwind) fn frame(
        &mut self,
        modules: &mut Modules,
        lookup: u64,
        time_ns: u64,
    ) -> Frame {
        let naming = self.code.naming(lookup, time_ns);
        while self.modules.len() <= naming as usize {
            let next = self.modules.len() as u32;
            self.modules.push(modules.jit(self.by, &self.code, next));
        }
        Frame { module: self.modules[naming as usize], offset: lookup }
    }
}
