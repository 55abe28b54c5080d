//! The code of the function that evaluates Python code, in the interpreter's file.

use super::super::cfi::Cfi;
use super::super::elf::Sections;
use crate::inspect::code::calls::{self, Target};
use crate::inspect::elf::{Elf, ElfError};
use std::fs::File;
use std::ops::Range;

/// Name of the function.
pub(super) const NAME: &str = "_PyEval_EvalFrameDefault";

/// The function.
#[derive(Clone, Debug)]
pub(super) struct Evaluation {
    /// Its address in the file's own address space.
    pub(super) svma: u64,
    /// File offsets of its parts. The first part begins at `svma`.
    pub(super) parts: Vec<Range<u64>>,
}

impl Evaluation {
    /// The function in a file; `None` if the file does not export it.
    pub(super) fn of(file: &File, elf: &Elf<'_>) -> Result<Option<Evaluation>, ElfError> {
        let Some(symbol) = elf.dynamic_functions(&[NAME])?.into_iter().next() else {
            return Ok(None);
        };
        let part = |code: Range<u64>| {
            let offset = elf.file_offset(code.start)?;
            Ok::<_, ElfError>(offset..offset.saturating_add(code.end.saturating_sub(code.start)))
        };
        let first = symbol.svma..symbol.svma.saturating_add(symbol.size);
        let targets = calls::targets(&elf.code(&symbol)?, symbol.svma, true);
        let mut parts = vec![part(first)?];
        for code in apart(file, &targets) {
            parts.push(part(code)?);
        }
        Ok(Some(Evaluation { svma: symbol.svma, parts }))
    }

    /// The file offset of its beginning.
    pub(super) fn offset(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.start)
    }
}

/// The parts of a function that the compiler has put elsewhere, without a symbol. `targets` are the
/// targets of the function's calls and jumps.
///
/// Plainly: calls, and jumps to other functions, lead to the beginning of code that has an entry in
/// the unwind table. Only jumps to a part of the same function lead into the middle.
fn apart(file: &File, targets: &[Target]) -> Vec<Range<u64>> {
    let Some(cfi) = Cfi::new(Sections::of_file(file)) else { return Vec::new() };
    let mut parts = Vec::new();
    for target in targets {
        let Target::Code(address) = target else { continue };
        let code = cfi.function_code(*address).filter(|code| code.start != *address);
        parts.extend(code.filter(|code| !parts.contains(code)));
    }
    parts
}
