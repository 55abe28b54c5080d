//! Makes names from foreign binaries safe for one line of text.
//!
//! A symbol can contain anything: line breaks that would split a folded line, escape sequences that
//! would control a terminal, and marks that reverse the reading order.

use std::borrow::Cow;

/// Replaces an empty name.
const UNKNOWN: &str = "[unknown]";

/// Whether a character ends a line in some tool (Unicode's two separators included) or controls a
/// terminal.
fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether a character has no glyph but changes how other characters are shown.
fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{e0000}'..='\u{e007f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn replaced(
    name: &str,
    unsafe_: impl Fn(char) -> bool,
    safe: impl Fn(char) -> char,
) -> Cow<'_, str> {
    if name.is_empty() {
        Cow::Borrowed(UNKNOWN)
    } else if name.contains(&unsafe_) {
        Cow::Owned(name.chars().map(|c| if unsafe_(c) { safe(c) } else { c }).collect())
    } else {
        Cow::Borrowed(name)
    }
}

/// The last part of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// A frame of the folded format. `;` separates frames there and becomes `:`; characters that break
/// a line become a space.
pub fn folded(name: &str) -> Cow<'_, str> {
    replaced(name, |c| c == ';' || breaks_line(c), |c| if c == ';' { ':' } else { ' ' })
}

/// A name for a terminal: on one line, without control characters.
pub fn shown(name: &str) -> Cow<'_, str> {
    replaced(name, |c| breaks_line(c) || invisible(c), |c| if invisible(c) { '?' } else { ' ' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_are_replaced() {
        assert_eq!(folded("a;b\nc\r\td\u{2028}e\u{1b}f\u{85}g"), "a:b c  d e f g");
        assert_eq!(folded(""), "[unknown]");
        assert_eq!(shown("x\u{202e}y\u{1b}[2Jz;"), "x?y [2Jz;");
        assert_eq!(shown("a\u{ad}b\u{61c}c\u{e0041}d"), "a?b?c?d");
        assert!(matches!(shown("std::vec<int, A>::f()"), Cow::Borrowed(_)));
    }
}
