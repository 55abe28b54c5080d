//! The marked line of a list, and the part of the list that is on the screen.

/// A position in a list.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::top) struct Cursor<Key> {
    /// The index of the marked line.
    pub(in crate::top) at: usize,
    /// The index of the first line on the screen.
    pub(in crate::top) first: usize,
    /// The marked item, once the user has chosen it. It stays marked when the order changes.
    pub(in crate::top) item: Option<Key>,
}

impl<Key> Default for Cursor<Key> {
    fn default() -> Cursor<Key> {
        Cursor { at: 0, first: 0, item: None }
    }
}

impl<Key: PartialEq> Cursor<Key> {
    /// Moves the mark to its item, in a list of `length` lines of which `height` are on the screen.
    pub(in crate::top) fn settle(
        &mut self,
        length: usize,
        height: usize,
        find: impl Fn(&Key) -> Option<usize>,
    ) {
        if let Some(at) = self.item.as_ref().and_then(find) {
            self.at = at;
        }
        self.at = self.at.min(length.saturating_sub(1));
        let height = height.max(1);
        if self.at < self.first {
            self.first = self.at;
        } else if self.at >= self.first + height {
            self.first = self.at + 1 - height;
        }
        self.first = self.first.min(length.saturating_sub(height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_follows_its_item() {
        let mut cursor = Cursor { at: 1, first: 0, item: Some('b') };
        let list = |text: &'static str| move |key: &char| text.chars().position(|c| c == *key);
        cursor.settle(4, 2, list("acdb"));
        assert_eq!((cursor.at, cursor.first), (3, 2));
        cursor.settle(1, 2, list("b"));
        assert_eq!((cursor.at, cursor.first), (0, 0));
        // The item is gone: the line number stays.
        cursor = Cursor { at: 2, first: 1, item: Some('b') };
        cursor.settle(3, 2, list("xyz"));
        assert_eq!((cursor.at, cursor.first), (2, 1));
        cursor.settle(0, 0, list(""));
        assert_eq!((cursor.at, cursor.first), (0, 0));
    }
}
