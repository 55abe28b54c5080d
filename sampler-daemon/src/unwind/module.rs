//! A module: a mapped file or other code that contains frames.

use super::generated::GeneratedCode;
use super::python::PythonLines;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// Number of a [`Module`] in [`super::Modules`], never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

impl ModuleId {
    /// The module of addresses in no executable mapping, which always exists.
    pub const UNKNOWN: ModuleId = ModuleId(0);
}

/// A code location that outlives its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The module that contains the location.
    pub module: ModuleId,
    /// File offset of the *look-up* address in the module's file. For a caller, that address is
    /// inside the call instruction (return address − 1); for a signal, it is the interrupted
    /// instruction itself. For anonymous code and unknown addresses: the look-up address in the
    /// process. For Python: the number of the line.
    pub offset: u64,
}

/// The kind of a module.
#[derive(Clone, Debug)]
pub enum ModuleKind {
    /// A mapped file. It is held open, because it may be deleted or replaced meanwhile.
    File(Arc<File>),
    /// The kernel's vdso, read from the process.
    Vdso(Arc<[u8]>),
    /// Anonymous executable memory (JIT code) of one process, and the index of the name among the
    /// names of an address. New code at an address has another index.
    Jit(Arc<GeneratedCode>, u32),
    /// Python code of one process.
    Python(Arc<PythonLines>),
    /// A file that was closed when no process had it mapped any more. The names that stacks need
    /// were looked up before.
    Closed,
    /// Addresses in no executable mapping, or a file that could not be opened or kept open.
    Unknown,
}

/// An executable segment of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSegment {
    /// The segment's file offsets.
    pub offsets: Range<u64>,
    /// Stated address (SVMA) of the segment's first byte.
    pub svma: u64,
}

/// A module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Key of the module in the table.
    pub id: ModuleId,
    /// Path in the process, or a name in brackets: `[vdso]`, `[jit PID]`, `[python PID]`,
    /// `[unknown]`.
    pub path: String,
    /// GNU build id, lower-case hex, empty if the module has none.
    pub build_id: String,
    /// The module's executable segments.
    pub code: Vec<CodeSegment>,
    /// The module's kind.
    pub kind: ModuleKind,
    /// Lives as long as the module, whose kind may change meanwhile.
    pub life: Life,
}

/// Lives as long as a module.
pub type Life = Arc<()>;

impl Module {
    /// File offsets of the executable segment that contains an offset in the module's file.
    pub fn code_at(&self, offset: u64) -> Option<&Range<u64>> {
        self.segment_at(offset).map(|segment| &segment.offsets)
    }

    /// Stated address (SVMA) of the code at an offset in the module's file; `None` if no executable
    /// segment contains the offset.
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
    fn an_offset_is_converted_by_its_segment() {
        let segment = |offsets, svma| CodeSegment { offsets, svma };
        let module = Module {
            id: ModuleId(1),
            path: String::new(),
            build_id: String::new(),
            code: vec![segment(0x1000..0x1800, 0x40_1000), segment(0x2000..0x2010, 0x60_3000)],
            kind: ModuleKind::Unknown,
            life: Life::default(),
        };
        let found = [0xfff, 0x1000, 0x17ff, 0x1800, 0x200f].map(|offset| module.svma(offset));
        assert_eq!(found, [None, Some(0x40_1000), Some(0x40_17ff), None, Some(0x60_300f)]);
    }
}
