//! Names in the vdso, which has only dynamic symbols.

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use std::sync::Arc;

/// A function of the vdso.
#[derive(Debug)]
struct Function {
    start: u64,
    size: u64,
    name: Arc<str>,
}

/// The functions of a vdso, by file offset.
#[derive(Debug, Default)]
pub(super) struct Vdso(Vec<Function>);

impl Vdso {
    /// Reads the functions; empty if these bytes are no ELF file.
    pub(super) fn parse(bytes: &[u8]) -> Vdso {
        let Ok(file) = object::File::parse(bytes) else { return Vdso::default() };
        let offset = |address: u64| {
            file.segments().find_map(|segment| {
                let inside = address.checked_sub(segment.address())?;
                (inside < segment.size()).then(|| segment.file_range().0 + inside)
            })
        };
        let mut functions: Vec<Function> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                let name = Arc::from(symbol.name().ok()?);
                Some(Function { start: offset(symbol.address())?, size: symbol.size(), name })
            })
            .collect();
        // Of `__vdso_time` and its weak alias `time`, the first name shows that the function is the
        // vdso's.
        functions.sort_by_key(|it| (it.start, !it.name.starts_with("__vdso")));
        functions.dedup_by_key(|it| it.start);
        Vdso(functions)
    }

    /// The function at a file offset.
    pub(super) fn find(&self, offset: u64) -> Option<&Arc<str>> {
        let index = self.0.partition_point(|it| it.start <= offset).checked_sub(1)?;
        let function = &self.0[index];
        (offset - function.start < function.size).then_some(&function.name)
    }
}
