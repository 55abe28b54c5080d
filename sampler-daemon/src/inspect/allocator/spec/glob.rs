//! Patterns for paths: `*` matches any number of characters, `?` matches one.

/// Whether the whole text matches the pattern.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut of) = (0, 0);
    // The place of the last star, and the end of the text that the star matches.
    let mut star: Option<(usize, usize)> = None;
    while of < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[of] => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (at, of) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_stars_and_question_marks() {
        for (pattern, text, is_match) in [
            ("libpool.so*", "libpool.so.2", true),
            ("libpool.so*", "/usr/lib/libpool.so.2", false),
            ("*/libpool.so*", "/usr/lib/libpool.so.2", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "axxbyybc", true),
            ("a*b*c", "axxbyybd", false),
            ("*.so", "x.so.so", true),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }
}
