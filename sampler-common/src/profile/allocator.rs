//! Frames that are entry points of an allocator.
//!
//! The leaf of every stack is the function that was probed. That `malloc` allocates everything is
//! no information, so bytes are attributed to the first frame that is no entry point.

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
    // Entry points of memory that is not malloc's.
    "mmap",
    "mmap64",
    "mremap",
    "sbrk",
];

/// Prefixes that allocators put before these names when they are not the only allocator (glibc's
/// aliases, jemalloc, tcmalloc, mimalloc, oneTBB's, snmalloc, rpmalloc).
const PREFIXES: [&str; 10] =
    ["__GI___libc_", "__libc_", "__GI_", "je_", "tc_", "mi_", "scalable_", "sn_", "rp", "__"];

/// Prefixes of CPython's allocator functions; `PYTHON_ENTRIES` has their endings.
const PYTHON: [&str; 3] = ["PyObject_", "PyMem_Raw", "PyMem_"];
const PYTHON_ENTRIES: [&str; 3] = ["Malloc", "Calloc", "Realloc"];

/// Prefix of those functions of the `sampler run --preload` library that are between an allocation
/// and its caller.
const PRELOADED: &str = "__sampler_preload_";
/// After that prefix, in the functions for allocators that are called past `malloc`.
const HEAP: &str = "heap_";

/// Whether a function is an allocator's entry point: a C function, an `operator new` of any kind,
/// or a function of CPython.
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

/// The function that a program has called, if the function of this name is the in-process sampler's
/// part of it: `malloc` for `__sampler_preload_malloc`.
pub fn interposed(function: &str) -> Option<&str> {
    match function.strip_prefix(PRELOADED)? {
        name if name.starts_with("new") => Some("operator new"),
        name if name.starts_with("delete") => Some("operator delete"),
        name => Some(name.strip_prefix(HEAP).unwrap_or(name)),
    }
}

/// The functions of [`is_entry`] as a regular expression of whole names without parameters.
/// `go tool pprof` compares names in this form.
pub(crate) fn entry_pattern() -> String {
    let (prefixes, entries) = (PREFIXES.join("|"), ENTRIES.join("|"));
    let python = format!("_?({})({})", PYTHON.join("|"), PYTHON_ENTRIES.join("|"));
    format!(r"(({prefixes})?({entries})|{python})([@.].*)?|operator new(\[\])?|{PRELOADED}.*")
}

#[cfg(test)]
mod tests {
    use super::{interposed, is_entry};

    #[test]
    fn the_sampler_s_functions_have_the_names_that_programs_call() {
        for (name, called) in [
            ("__sampler_preload_malloc", Some("malloc")),
            ("__sampler_preload_heap_realloc", Some("realloc")),
            ("__sampler_preload_new_told", Some("operator new")),
            ("__sampler_preload_delete_injected", Some("operator delete")),
            ("malloc", None),
        ] {
            assert_eq!(interposed(name), called, "{name}");
            assert!(called.is_none_or(|called| called == "operator delete" || is_entry(called)));
        }
    }

    #[test]
    fn entry_functions_of_allocators_are_recognized() {
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
