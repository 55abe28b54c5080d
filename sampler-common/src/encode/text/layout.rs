//! Text in columns of a terminal: width, padding, shortening, wrapping.

/// Columns of a character. Wide scripts and emoji take two. A combining mark counts as one, so that
/// a line is at worst shorter than the page.
fn columns_of(c: char) -> usize {
    match u32::from(c) {
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f000..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Columns of a text.
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// `text` padded with blanks on the right to `width` columns.
pub fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// `text` padded with blanks on the left to `width` columns.
pub fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// The characters from the front of `text` that fit into `width` columns.
fn head(text: &str, width: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += columns_of(*c);
        used > width
    });
    &text[..end.map_or(text.len(), |(index, _)| index)]
}

/// The characters from the back of `text` that fit into `width` columns.
fn tail(text: &str, width: usize) -> &str {
    let mut used = 0;
    let start = text.char_indices().rev().find(|(_, c)| {
        used += columns_of(*c);
        used > width
    });
    &text[start.map_or(0, |(index, c)| index + c.len_utf8())..]
}

/// `text` shortened in the middle to `width` columns, because both ends of a long name distinguish
/// it.
pub fn middle(text: &str, width: usize) -> String {
    let room = width.saturating_sub(1);
    keeping(text, width, room / 2)
}

/// `text` shortened to `width` columns: the last `back` columns, and as much of the beginning as
/// there is room for.
pub fn keeping(text: &str, width: usize, back: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let back = back.min(room);
    format!("{}…{}", head(text, room - back), tail(text, back))
}

/// `text` shortened at the front to `width` columns, because the end of a place in a file matters.
pub fn end(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    format!("…{}", tail(text, width.saturating_sub(1)))
}

/// Lines of at most `width` columns, broken at blanks; a longer word is shortened in the middle.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let word = middle(word, width);
        if !line.is_empty() && columns(&line) + 1 + columns(&word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.push(line);
    lines
}

/// Minimum columns of a text behind a label.
const MIN_TEXT: usize = 20;

/// A label in `label_width` columns and its text, wrapped under itself to `width`.
pub fn paragraph(label: &str, text: &str, label_width: usize, width: usize) -> String {
    let lines = wrapped(text, width.saturating_sub(label_width).max(MIN_TEXT));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let line = |(label, line): (&str, &String)| format!("{}{line}\n", left(label, label_width));
    labels.zip(&lines).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ends_of_a_name_stay() {
        assert_eq!(middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(middle("abcdefghijk", 10), "abcde…hijk");
        assert_eq!(end("hashtable.h:2048", 10), "…le.h:2048");
        assert_eq!(middle("漢字漢字漢字", 6), "漢…字");
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
    }

    proptest! {
        #[test]
        fn laid_out_text_fits_its_width(text in ".{0,60}", width in 1usize..40) {
            prop_assert!(columns(&middle(&text, width)) <= width);
            prop_assert!(columns(&end(&text, width)) <= width);
            prop_assert!(wrapped(&text, width).iter().all(|line| columns(line) <= width));
            prop_assert!(columns(&left(&text, width)) >= width);
        }
    }
}
