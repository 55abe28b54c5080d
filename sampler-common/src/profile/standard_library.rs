//! Source files of the standard libraries of Rust and C++.
//!
//! Their functions call the program's closures, or allocate for the program's containers. They tell
//! a program's owner less than the program's own functions do.

/// Whether a source file belongs to a standard library.
pub(super) fn is_of_standard_library(file: &str) -> bool {
    // rustc writes the first name, or the second where the library's sources are installed.
    file.starts_with("/rustc/")
        || file.contains("/rustlib/src/rust/library/")
        || file.contains("/include/c++/")
}

#[cfg(test)]
mod tests {
    use super::is_of_standard_library;
    use crate::encode::fixture;
    use crate::profile::{Kind, functions};

    #[test]
    fn sources_of_standard_libraries_are_recognized() {
        for file in [
            "/rustc/59807616e1fa/library/core/src/ops/function.rs",
            "/home/me/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/thread/mod.rs",
            "/usr/include/c++/12/bits/stl_vector.h",
        ] {
            assert!(is_of_standard_library(file), "{file}");
        }
        for file in ["", "src/main.rs", "/home/me/library/core/src/lib.rs", "/usr/include/zlib.h"] {
            assert!(!is_of_standard_library(file), "{file}");
        }
    }

    #[test]
    fn functions_of_a_standard_library_come_after_the_program_s() {
        let mut profile = fixture::profile(Kind::Alloc);
        let callers = |profile: &_| -> Vec<String> {
            let all = functions(profile).into_iter().filter(|of| of.own().is_none());
            all.map(|of| of.frame.line.function.split(['(', '<']).next().unwrap().into()).collect()
        };
        let [insert, put] = ["std::_Hashtable", "Store::put"];
        let [handle, main, start] = ["Server::handle", "main", "__libc_start_call_main"];
        assert_eq!(callers(&profile), [handle, main, put, insert, start]);
        fixture::move_to_program(&mut profile, insert);
        assert_eq!(callers(&profile), [handle, main, insert, put, start]);
    }
}
