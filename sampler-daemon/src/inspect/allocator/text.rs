//! Which code of a file belongs to an allocator. It separates the system calls by which an
//! allocator gets its memory from the program's own.
//!
//! A library that is only an allocator belongs to the allocator as a whole. In any other file (a
//! libc, a program with an allocator linked in), functions with an allocator's names belong to it.
//! The targets of the jumps at their ends belong to it as well. For example, glibc's `memalign` is
//! only a jump to a function without a name.

use crate::inspect::elf::symbols::Symbol;
use crate::inspect::elf::{Elf, ElfError};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;

/// Beginnings of the names of libraries that are only an allocator.
const LIBRARIES: &[&str] = &[
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
    "libtbbmalloc",
    "librpmalloc",
    "libhoard",
    "libscudo",
];

/// The C library's own names, in any file that exports them. A program's own static `free` does not
/// count.
const STANDARD: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "free",
    "malloc_trim",
    "malloc_info",
    "mallopt",
];

/// Functions that the program calls, and functions on every path from these to the system.
/// Compilers turn calls into jumps, and then the called function itself is not on the stack.
const FUNCTIONS: &[&str] = &[
    // glibc
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_free",
    "_int_malloc",
    "_int_memalign",
    "_mid_memalign",
    // musl
    "__libc_malloc_impl",
    "__malloc_alloc_meta",
    "__expand_heap",
    "__simple_malloc",
    // jemalloc; the names with `_rjem` are tikv-jemallocator's.
    "je_malloc",
    "je_pages_map",
    "je_extent_alloc_mmap",
    "_rjem_malloc",
    "_rjem_je_pages_map",
    "_rjem_je_extent_alloc_mmap",
    // mimalloc
    "mi_malloc",
    "_mi_malloc_generic",
    "_mi_os_alloc",
    "_mi_os_alloc_aligned",
    "_mi_prim_alloc",
    // tcmalloc
    "tc_malloc",
    "_ZN16MmapSysAllocator5AllocEmPmm",
    "_ZN16SbrkSysAllocator5AllocEmPmm",
    "_Z20TCMalloc_SystemAllocmPmm",
    // Others
    "rpmalloc",
    "scalable_malloc",
    "sn_malloc",
];

/// The code of a file that belongs to an allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatorText {
    /// Whether all code of the file belongs to the allocator.
    pub whole: bool,
    /// The allocator's functions, as addresses in the file's own address space.
    pub functions: Vec<Range<u64>>,
    /// First addresses of the functions to which `functions` jump.
    pub continued: HashSet<u64>,
}

impl AllocatorText {
    /// Reads a mapped file. A file that cannot be read has no known allocator.
    pub fn read(file: &File, path: &str) -> AllocatorText {
        AllocatorText::try_read(file, path).unwrap_or_default()
    }

    fn try_read(file: &File, path: &str) -> Result<AllocatorText, ElfError> {
        let elf = Elf::read(file)?;
        let base = path.rsplit('/').next().unwrap_or(path);
        let is_one = |name: &str| LIBRARIES.iter().any(|of| name.starts_with(of));
        if is_one(base) || is_one(&elf.soname) {
            return Ok(AllocatorText { whole: true, ..AllocatorText::default() });
        }
        let names: Vec<&str> = STANDARD.iter().chain(FUNCTIONS).copied().collect();
        let mut symbols = elf.dynamic_functions(&names)?;
        symbols.extend(elf.static_functions(&names)?);
        symbols.retain(|symbol| !symbol.is_local || !STANDARD.contains(&symbol.name));
        let mut code = AllocatorText::default();
        for symbol in &symbols {
            let range = symbol.svma..symbol.svma.saturating_add(symbol.size.max(1));
            // A function whose code cannot be read still has its range.
            code.continued.extend(elf.code(symbol).map_or(vec![], |bytes| jumps(&bytes, symbol)));
            if !code.functions.contains(&range) {
                code.functions.push(range);
            }
        }
        Ok(code)
    }

    /// Whether the file has no allocator code.
    pub fn is_empty(&self) -> bool {
        !self.whole && self.functions.is_empty()
    }

    /// Whether an address of the file's address space belongs to the allocator. `start` is the
    /// first address of the function around the address, if known.
    pub fn has(&self, svma: u64, start: Option<u64>) -> bool {
        self.whole
            || self.functions.iter().any(|range| range.contains(&svma))
            || start.is_some_and(|start| self.continued.contains(&start))
    }
}

/// The targets of a function's jumps to code outside the function.
fn jumps(bytes: &[u8], symbol: &Symbol) -> Vec<u64> {
    let own = symbol.svma..symbol.svma.saturating_add(bytes.len() as u64);
    let decoder = Decoder::with_ip(64, bytes, symbol.svma, DecoderOptions::NONE);
    let jumps = decoder.into_iter().filter(|it| {
        matches!(it.flow_control(), FlowControl::UnconditionalBranch)
            && !own.contains(&it.near_branch_target())
    });
    jumps.map(|it| it.near_branch_target()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_out_of_a_function_are_found() {
        // jmp +0 (to the next instruction, its own), jmp far ahead, call far ahead, ret
        let bytes = [0xeb, 0x00, 0xe9, 0x00, 0x01, 0x00, 0x00, 0xe8, 0, 1, 0, 0, 0xc3];
        let symbol = Symbol {
            name: "memalign",
            is_default: true,
            is_local: false,
            is_hidden: false,
            svma: 0x1000,
            size: 13,
        };
        assert_eq!(jumps(&bytes, &symbol), [0x1107]);
    }

    #[test]
    fn a_whole_library_is_an_allocator() {
        let whole = AllocatorText { whole: true, ..AllocatorText::default() };
        assert!(whole.has(7, None));
        let part = AllocatorText {
            whole: false,
            functions: std::iter::once(0x10..0x20).collect(),
            continued: HashSet::from([0x40]),
        };
        assert!(part.has(0x1f, None) && part.has(0x4f, Some(0x40)));
        assert!(!part.has(0x20, None) && !part.has(0x4f, Some(0x41)));
    }
}
