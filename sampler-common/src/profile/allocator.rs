//! Which frames are an allocator's own entry points.
//!
//! The leaf of every stack is the function that was probed. To learn that `malloc` allocates
//! everything helps nobody: bytes are attributed to the first frame that is not one of these.

/// C entry points, by their plain names.
const ENTRIES: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "cfree",
    // Of memory that is not malloc's.
    "mmap",
    "mmap64",
    "mremap",
    "sbrk",
];

/// What allocators put before these names when they are not the only one (glibc's aliases, jemalloc,
/// tcmalloc, mimalloc, oneTBB's, snmalloc, rpmalloc).
const PREFIXES: [&str; 10] =
    ["__GI___libc_", "__libc_", "__GI_", "je_", "tc_", "mi_", "scalable_", "sn_", "rp", "__"];

/// What CPython's allocator functions begin with, and end with.
const PYTHON: [&str; 3] = ["PyObject_", "PyMem_Raw", "PyMem_"];
const PYTHON_ENTRIES: [&str; 3] = ["Malloc", "Calloc", "Realloc"];

/// What functions of the library of `sampler run --preload` begin with that stand between an allocation and its caller.
const PRELOADED: &str = "__sampler_preload_";

/// Whether a function is an allocator's entry point: a C one, an `operator new` of any kind, or one of CPython's.
pub(crate) fn is_entry(function: &str) -> bool {
    // `malloc@@GLIBC_2.2.5`, `_PyObject_Malloc.lto_priv.0`
    let name = function.split(['@', '.']).next().unwrap_or(function);
    if let Some(rest) = name.strip_prefix("operator new") {
        return rest.is_empty() || rest.starts_with(['(', '[']);
    }
    if name.starts_with(PRELOADED) {
        return true;
    }
    let python = name.strip_prefix('_').unwrap_or(name);
    if let Some(rest) = PYTHON.iter().find_map(|prefix| python.strip_prefix(prefix)) {
        return PYTHON_ENTRIES.contains(&rest);
    }
    let plain = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    ENTRIES.contains(&plain)
}

/// The functions of [`is_entry`] as a regular expression of whole names without parameters, which is how `go tool pprof` compares.
pub(crate) fn entry_pattern() -> String {
    let (prefixes, entries) = (PREFIXES.join("|"), ENTRIES.join("|"));
    let python = format!("_?({})({})", PYTHON.join("|"), PYTHON_ENTRIES.join("|"));
    format!(r"(({prefixes})?({entries})|{python})([@.].*)?|operator new(\[\])?|{PRELOADED}.*")
}

#[cfg(test)]
mod tests {
    use super::is_entry;

    #[test]
    fn entries() {
        for name in [
            "malloc",
            "malloc@@GLIBC_2.2.5",
            "__libc_memalign",
            "__posix_memalign",
            "je_calloc",
            "scalable_malloc",
            "rpmalloc",
            "__sampler_preload_realloc",
            "__sampler_preload_new_told",
            "mmap",
            "PyMem_RawMalloc",
            "_PyObject_Malloc",
            "_PyObject_Realloc.lto_priv.0",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::align_val_t, std::nothrow_t const&)",
        ] {
            assert!(is_entry(name), "{name}");
        }
        for name in [
            "",
            "strdup",
            "sampler_malloc",
            "xmalloc",
            "malloc_stats",
            "operator newton",
            "main",
            "__rust_alloc",
            "PyObject_GC_New",
            "_PyMem_DebugEnabled",
        ] {
            assert!(!is_entry(name), "{name}");
        }
    }
}
