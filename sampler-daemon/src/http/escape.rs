//! Shows text that another program sent in one line of an answer.

/// Maximum number of characters of the text that are shown.
const MAX_SHOWN_CHARS: usize = 60;

/// Returns the beginning of `text` as one line, with special characters escaped.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn escaped_text_is_one_line_of_limited_length() {
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert!(shown(&"x".repeat(10_000)).chars().count() <= 61);
    }
}
