//! Links of one process, by the file that each link is in.

use super::FileId;
use crate::bpf::Link;

/// The links of one process, in the order in which they were attached.
pub(super) struct OwnLinks<T = Link>(Vec<(Option<FileId>, T)>);

impl<T> Default for OwnLinks<T> {
    fn default() -> OwnLinks<T> {
        OwnLinks(Vec::new())
    }
}

impl<T> OwnLinks<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a link in `file` that stays longer than a window.
    pub(super) fn has(&self, file: FileId) -> bool {
        self.0.iter().any(|(of, _)| *of == Some(file))
    }

    /// Adds links in `file`.
    pub(super) fn add(&mut self, file: FileId, links: Vec<T>) {
        self.0.extend(links.into_iter().map(|link| (Some(file), link)));
    }

    /// Adds links that stay no longer than a window, whichever file they are in.
    pub(super) fn add_for_window(&mut self, links: Vec<T>) {
        self.0.extend(links.into_iter().map(|link| (None, link)));
    }

    /// Removes and returns all links, for closing.
    pub(super) fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.0).into_iter().map(|(_, link)| link).collect()
    }

    /// Removes and returns the links in `file`, for closing.
    pub(super) fn take_of(&mut self, file: FileId) -> Vec<T> {
        self.take_where(|of| *of == Some(file))
    }

    /// Removes and returns the links in files that are not mapped, for closing.
    pub(super) fn take_unmapped(&mut self, is_mapped: impl Fn(FileId) -> bool) -> Vec<T> {
        self.take_where(|file| file.is_some_and(|it| !is_mapped(it)))
    }

    fn take_where(&mut self, is_taken: impl Fn(&Option<FileId>) -> bool) -> Vec<T> {
        self.0.extract_if(.., |(file, _)| is_taken(file)).map(|(_, link)| link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_taken_with_their_file() {
        let mut links = OwnLinks::default();
        let (kept, gone) = ((1, 1), (1, 2));
        links.add(kept, vec!["free", "malloc"]);
        links.add(gone, vec!["je_free", "je_malloc"]);
        links.add_for_window(vec!["marker"]);
        assert_eq!(links.take_unmapped(|file| file == kept), ["je_free", "je_malloc"]);
        assert!(links.take_unmapped(|file| file == kept).is_empty());
        assert!(links.take_of(gone).is_empty());
        assert!(links.has(kept) && !links.has(gone));
        assert_eq!(links.take_of(kept), ["free", "malloc"]);
        assert_eq!(links.take(), ["marker"]);
        assert!(links.is_empty());
    }
}
