//! Names as programmers wrote them. blazesym would take any name for a mangled one, and `f` and `w` for C++'s `float` and `wchar_t`.

/// The name of a function: demangled, if it begins as mangled names of Rust and C++ do.
pub(super) fn demangled(name: &str) -> String {
    if !["_Z", "__Z", "_R"].iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    if let Ok(of_rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        return format!("{of_rust:#}");
    }
    let of_cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    of_cpp.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::demangled;

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
}
