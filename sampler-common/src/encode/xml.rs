//! Text for XML: names can contain anything, XML cannot.

use super::name;
use std::borrow::Cow;

/// `text` as the content of an element or a quoted attribute, on one line. Characters that XML
/// forbids, escaped or not, are replaced.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let shown = name::shown(text);
    if !shown.contains(special) {
        return shown;
    }
    let mut out = String::with_capacity(shown.len() + 16);
    for c in shown.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn special(c: char) -> bool {
    matches!(c, '&' | '<' | '>' | '"' | '\'' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn xml_markup_is_escaped() {
        assert_eq!(
            escaped("<script>alert('x')</script>&\"\u{0}\u{ffff}"),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot; ?"
        );
        assert_eq!(escaped("]]>"), "]]&gt;");
        assert_eq!(escaped("plain"), "plain");
        assert_eq!(escaped(""), "[unknown]");
    }
}
