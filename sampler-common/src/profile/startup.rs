//! Frames that start a program or a thread: every stack has them, so they distinguish none.

/// Functions that the C library and the runtimes of Rust and Python call on the way to a program's
/// own code.
const STARTUP: [&str; 13] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "std::rt::lang_start",
    "Py_BytesMain",
    "Py_RunMain",
    "run_mod",
    "run_eval_code_obj",
];

/// Prefixes of further such functions of CPython.
const PREFIXES: [&str; 4] = ["pymain_", "pyrun_", "PyRun_", "_PyRun_"];

/// Whether a function only starts the program or a thread.
pub(super) fn is_startup(function: &str) -> bool {
    // `__libc_start_main@@GLIBC_2.34`, `__libc_start_main_impl`, `std::rt::lang_start::{{closure}}`
    let name = function.split('@').next().unwrap_or(function);
    let name = name.strip_suffix("_impl").or(name.strip_suffix("::{{closure}}")).unwrap_or(name);
    STARTUP.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::is_startup;

    #[test]
    fn startup_functions_are_recognized() {
        for name in [
            "_start",
            "__libc_start_main@@GLIBC_2.34",
            "__libc_start_main_impl",
            "start_thread",
            "pymain_run_python",
        ] {
            assert!(is_startup(name), "{name}");
        }
        for name in
            ["main", "start", "clone_repository", "std::rt::lang_start_of_mine", "PyEval_EvalCode"]
        {
            assert!(!is_startup(name), "{name}");
        }
    }
}
