//! Long function names in few columns: what tells functions apart is kept longest.

use super::layout;
use std::borrow::Cow;

/// `name` in at most `width` columns: whole if it fits; else without its parameters; else with `<…>` for
/// template arguments too; else shortened in the middle as well.
pub fn short(name: &str, width: usize) -> Cow<'_, str> {
    if layout::columns(name) <= width {
        return Cow::Borrowed(name);
    }
    let name = without_parameters(name);
    if layout::columns(name) <= width {
        return Cow::Borrowed(name);
    }
    Cow::Owned(layout::middle(&without_arguments(name), width))
}

/// `f(int)` → `f`, `S::get(T&&) const` → `S::get`. A name in parentheses (`(anonymous namespace)::x`,
/// `operator()`) is no parameter list.
fn without_parameters(name: &str) -> &str {
    let Some(close) = name.rfind(')') else { return name };
    let rest = &name[close + 1..];
    if !matches!(rest, "" | " const" | " &" | " &&" | " const &" | " const &&" | " volatile") {
        return name;
    }
    let mut open = 0usize;
    for (index, byte) in name.as_bytes()[..=close].iter().enumerate().rev() {
        match byte {
            b')' => open += 1,
            b'(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            let front = &name[..index];
            return if front.is_empty() || front.ends_with("operator") { name } else { front };
        }
    }
    name
}

/// `map<K, V>::at` → `map<…>::at`. Names whose angle brackets are not all brackets (`operator<`, `->`)
/// stay as they are.
fn without_arguments(name: &str) -> Cow<'_, str> {
    if name.contains("operator<") || name.contains("operator>") || name.contains("->") {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    for c in name.chars() {
        if c == '>' {
            let Some(less) = depth.checked_sub(1) else { return Cow::Borrowed(name) };
            depth = less;
        }
        if depth == 0 {
            out.push(c);
        }
        if c == '<' {
            if depth == 0 {
                out.push('…');
            }
            depth += 1;
        }
    }
    if depth == 0 { Cow::Owned(out) } else { Cow::Borrowed(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        assert_eq!(short("Server::handle(Connection&)", 20), "Server::handle");
        assert_eq!(short("Server::handle(Connection&)", 27), "Server::handle(Connection&)");
        assert_eq!(
            short("std::map<std::string, int>::at(std::string const&) const", 16),
            "std::map<…>::at"
        );
        assert_eq!(
            short("(anonymous namespace)::go(int (*)(char))", 26),
            "(anonymous namespace)::go"
        );
        assert_eq!(without_parameters("F::operator()(int) const"), "F::operator()");
        assert_eq!(without_parameters("F::operator()"), "F::operator()");
        assert_eq!(without_parameters("f(int) [clone .cold]"), "f(int) [clone .cold]");
        assert_eq!(without_parameters("f)(x))"), "f)(x))");
        assert_eq!(without_arguments("A<B<C>>::f<D>"), "A<…>::f<…>");
        assert_eq!(without_arguments("<T as U>::f"), "<…>::f");
        assert_eq!(without_arguments("A>b<"), "A>b<");
        assert_eq!(without_arguments("S::operator<< <int>"), "S::operator<< <int>");
    }

    proptest! {
        #[test]
        fn any_name_fits(name in "[a-z<>()&:, é漢]{0,40}", width in 1usize..40) {
            prop_assert!(layout::columns(&short(&name, width)) <= width);
        }
    }
}
