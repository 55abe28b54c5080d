//! Names as programmers wrote them. Libraries that read names would demangle any name, and would
//! take `f` and `w` for C++'s `float` and `wchar_t`.

use cpp_demangle::DemangleOptions;
use std::fmt::{self, Write};

/// Maximum bytes of a demangled name. Two hundred bytes of a mangled name can stand for terabytes.
const MAX_BYTES: usize = 64 << 10;

/// The name of a function, demangled if it begins as mangled names of Rust and C++ do. If the
/// result would exceed [`MAX_BYTES`], the mangled name stays.
pub(super) fn demangled(name: &str) -> String {
    if !["_Z", "__Z", "_R"].iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    let mut bounded = Bounded(String::new());
    let written = if let Ok(of_rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        write!(bounded, "{of_rust:#}")
    } else if let Ok(of_cpp) = cpp_demangle::Symbol::new(name) {
        of_cpp.structured_demangle(&mut bounded, &DemangleOptions::default())
    } else {
        Err(fmt::Error)
    };
    written.map_or_else(|_| name.to_owned(), |()| bounded.0)
}

/// A symbol's name without its version: `memcpy` of `memcpy@@GLIBC_2.14`.
pub(super) fn unversioned(name: &str) -> &str {
    let is_version = |text: &str| {
        let of_version = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        !text.is_empty() && text.bytes().all(of_version)
    };
    match name.split_once('@') {
        Some((base, version))
            if !base.is_empty() && is_version(version.strip_prefix('@').unwrap_or(version)) =>
        {
            base
        }
        _ => name,
    }
}

/// Text up to a length. A longer text is an error, so that its writer stops.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, demangled, unversioned};

    #[test]
    fn only_mangled_names_are_demangled() {
        for name in ["f", "v", "i", "w", "Pc", "St", "main", "_start", "_Zebra", "_Region", ""] {
            assert_eq!(demangled(name), name);
        }
        for (mangled, name) in [
            ("_ZN4shop4CartIlE3addElPKc", "shop::Cart<long>::add(long, char const*)"),
            ("_Z1wv", "w()"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ] {
            assert_eq!(demangled(mangled), name);
        }
    }

    #[test]
    fn versions_are_cut() {
        for (symbol, name) in [
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy"),
            ("_ZNSt6vectorC1Ev@@GLIBCXX_3.4", "_ZNSt6vectorC1Ev"),
            ("malloc", "malloc"),
            ("f@", "f@"),
            ("@version", "@version"),
            ("a@b c", "a@b c"),
        ] {
            assert_eq!(unversioned(symbol), name);
        }
    }

    /// Each parameter is a pair of the previous one: 2^40 names.
    #[test]
    fn a_name_that_doubles_with_each_parameter_stays_mangled() {
        let doubling: String = (0..40)
            .map(|at: usize| {
                let of = match at {
                    0 => "i".to_owned(),
                    // The last substitution. Each parameter adds two, the template and the pair.
                    _ => format!("S{}_", if at == 1 { "0".to_owned() } else { base36(at - 1) }),
                };
                if at == 0 { format!("1pI{of}{of}E") } else { format!("S_I{of}{of}E") }
            })
            .collect();
        let mangled = format!("_Z1f{doubling}");
        let begin = std::time::Instant::now();
        assert!(demangled(&mangled).len() <= MAX_BYTES);
        assert_eq!(demangled(&mangled), mangled, "it was to be too long");
        assert!(begin.elapsed().as_secs() < 10);
    }

    /// A number as the C++ ABI numbers substitutions.
    fn base36(number: usize) -> String {
        let digit = |of: usize| char::from(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[of]);
        match number {
            0..36 => digit(number).to_string(),
            _ => format!("{}{}", digit(number / 36), digit(number % 36)),
        }
    }
}
