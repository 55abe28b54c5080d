//! A module: a mapped file (or other code) that frames lie in.

use super::generated::GeneratedCode;
use super::python::PythonLines;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Number of a [`Module`] in [`super::Modules`]; given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

impl ModuleId {
    /// The module of addresses in no executable mapping; always there.
    pub const UNKNOWN: ModuleId = ModuleId(0);
}

/// A code location that outlives its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Where it lies.
    pub module: ModuleId,
    /// File offset of the *look-up* address in the module's file: inside the call instruction
    /// (return address − 1) for callers, the instruction itself where a signal interrupted.
    /// For anonymous code and unknown addresses: the address in the process (look-up address too). For Python: the number of the line.
    pub offset: u64,
}

/// What a module is.
#[derive(Clone, Debug)]
pub enum ModuleKind {
    /// A mapped file, held open: it may be deleted or replaced meanwhile.
    File(Arc<File>),
    /// The kernel's vdso, read from the process.
    Vdso(Arc<[u8]>),
    /// Anonymous executable memory (JIT code) of one process, and which of the names of its addresses are meant: code that is made
    /// anew at an address has another one.
    Jit(Arc<GeneratedCode>, u32),
    /// Python code of one process.
    Python(Arc<PythonLines>),
    /// A file that was closed when no process had it mapped any more: what it was called where stacks need it was asked before.
    Closed,
    /// Addresses in no executable mapping, or a file that could not be opened or kept open.
    Unknown,
}

/// An executable segment of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSegment {
    /// Its file offsets.
    pub offsets: Range<u64>,
    /// Stated address (SVMA) of its first byte.
    pub svma: u64,
}

/// A module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its place in the table.
    pub id: ModuleId,
    /// Path in the process, or a name in brackets: `[vdso]`, `[jit PID]`, `[python PID]`, `[unknown]`.
    pub path: String,
    /// GNU build id, lower-case hex, empty if it has none.
    pub build_id: String,
    /// Its executable segments.
    pub code: Vec<CodeSegment>,
    /// What it is.
    pub kind: ModuleKind,
}

impl Module {
    /// The executable segment that an offset in its file lies in.
    pub fn code_at(&self, offset: u64) -> Option<&Range<u64>> {
        self.segment_at(offset).map(|segment| &segment.offsets)
    }

    /// Stated address (SVMA) of the code at an offset in its file; `None` where no executable segment is.
    pub fn svma(&self, offset: u64) -> Option<u64> {
        let segment = self.segment_at(offset)?;
        Some(segment.svma.wrapping_add(offset - segment.offsets.start))
    }

    fn segment_at(&self, offset: u64) -> Option<&CodeSegment> {
        self.code.iter().find(|segment| segment.offsets.contains(&offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_the_segment_it_lies_in() {
        let segment = |offsets, svma| CodeSegment { offsets, svma };
        let module = Module {
            id: ModuleId(1),
            path: String::new(),
            build_id: String::new(),
            code: vec![segment(0x1000..0x1800, 0x40_1000), segment(0x2000..0x2010, 0x60_3000)],
            kind: ModuleKind::Unknown,
        };
        let found = [0xfff, 0x1000, 0x17ff, 0x1800, 0x200f].map(|offset| module.svma(offset));
        assert_eq!(found, [None, Some(0x40_1000), Some(0x40_17ff), None, Some(0x60_300f)]);
    }
}
