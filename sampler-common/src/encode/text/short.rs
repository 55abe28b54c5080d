//! Shortens long function names so that they stay distinct for as long as possible.

use super::layout;
use std::borrow::Cow;

/// `name` in at most `width` columns: whole if it fits, else without its parameters, else with
/// `<…>` for template arguments too. If that does not fit either: its end, and as much of its
/// beginning as there is room for.
pub fn short(name: &str, width: usize) -> Cow<'_, str> {
    if layout::columns(name) <= width {
        return Cow::Borrowed(name);
    }
    let name = without_parameters(name);
    if layout::columns(name) <= width {
        return Cow::Borrowed(name);
    }
    Cow::Owned(ending(&without_arguments(name), width))
}

/// Like [`short`], but with as many template arguments as there is room for: they distinguish
/// instances of one function.
pub fn with_arguments(name: &str, width: usize) -> String {
    ending(without_parameters(name), width)
}

/// The end of a name without its parameters but with its template arguments.
pub fn end_of_name(name: &str, width: usize) -> String {
    layout::end(without_parameters(name), width)
}

/// Minimum columns of a beginning.
const MIN_BEGINNING: usize = 8;

/// The end of a name, which distinguishes it more than its middle:
/// `std::_Hash…::_M_insert_unique_node`.
fn ending(name: &str, width: usize) -> String {
    if layout::columns(name) <= width {
        return name.to_owned();
    }
    let room = width.saturating_sub(1);
    let last = last_component(name);
    let back = layout::columns(last);
    match last.len() < name.len() && back <= room {
        true if room - back < MIN_BEGINNING => format!("…{last}"),
        true => layout::keeping(name, width, back),
        false => layout::keeping(last.trim_start_matches("::"), width, room - room / 3),
    }
}

/// The name from the last `::` on; a closure keeps the function that it is in.
fn last_component(name: &str) -> &str {
    let front = ["::{{closure}}", "::operator()"].iter().find_map(|of| name.strip_suffix(of));
    &name[front.unwrap_or(name).rfind("::").unwrap_or(0)..]
}

/// `f(int)` → `f`, `S::get(T&&) const` → `S::get`. A name in parentheses
/// (`(anonymous namespace)::x`, `operator()`) is no parameter list.
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

/// `map<K, V>::at` → `map<…>::at`. Names whose angle brackets are not all brackets (`operator<`,
/// `->`) stay as they are.
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
    fn long_names_lose_arguments_before_their_ends() {
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
        let insert = "std::_Hashtable<int, std::pair<int, long>>::_M_insert_unique_node(long)";
        assert_eq!(short(insert, 36), "std::_Hashta…::_M_insert_unique_node");
        assert_eq!(short(insert, 26), "…::_M_insert_unique_node");
        assert_eq!(short(insert, 12), "_M_…que_node");
        assert_eq!(with_arguments(insert, 46), "std::_Hashtable<int, s…::_M_insert_unique_node");
        assert_eq!(
            short("store::index::Index::rebuild::{{closure}}", 34),
            "store::inde…::rebuild::{{closure}}"
        );
        assert_eq!(short("pymain_run_python_of_the_interpreter", 16), "pymai…nterpreter");
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
        fn any_name_is_cut_to_its_width(name in "[a-z<>()&:, é漢]{0,40}", width in 1usize..40) {
            prop_assert!(layout::columns(&short(&name, width)) <= width);
        }
    }
}
