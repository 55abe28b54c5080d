//! Patterns of names with `*` and `?`, as in shells.

/// Whether a pattern matches a whole text: `*` stands for any characters, `?` for one.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Position of the last star, and end of the text that it matches. Only this choice is ever
    // revised.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, reached)) => {
                    star = Some((at, reached + 1));
                    (p, t) = (at + 1, reached + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_and_unicode_patterns_match() {
        assert!(
            matches("", "") && matches("*", "") && matches("**", "x") && matches("漢?", "漢字")
        );
        assert!(
            !matches("", "x") && !matches("?", "") && !matches("a*", "") && !matches("*a", "ab")
        );
    }

    proptest! {
        #[test]
        fn stars_match_any_text_between_the_parts(
            parts in prop::collection::vec("[ab]{1,3}", 1..4),
            fill in prop::collection::vec("[abc]{0,3}", 3),
        ) {
            let mut text = parts[0].clone();
            for (part, fill) in parts[1..].iter().zip(&fill) {
                text += fill;
                text += part;
            }
            let pattern = parts.join("*");
            prop_assert!(matches(&pattern, &text));
            prop_assert!(matches(&"?".repeat(text.len()), &text));
            prop_assert!(!matches(&"?".repeat(text.len() + 1), &text));
            let (first, last) = (format!("d{text}"), format!("{text}d"));
            prop_assert!(!matches(&pattern, &first) && !matches(&pattern, &last));
            let (wider, around) = (format!("*{pattern}*"), format!("d{text}d"));
            prop_assert!(matches(&wider, &around));
        }
    }
}
