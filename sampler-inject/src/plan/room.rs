//! The pages of a plan, and their bytes in use.

use std::collections::BTreeMap;
use std::ops::Range;

use super::layout::{Layout, PAGE_BYTES};

/// Alignment of bytes that may lie anywhere on a page.
const ALIGNMENT: u64 = 16;

/// Pages that will be mapped.
#[derive(Clone)]
pub(super) struct Room<'l> {
    layout: &'l Layout,
    /// For each page: its bytes in use.
    pages: BTreeMap<u64, Vec<Range<u64>>>,
}

impl<'l> Room<'l> {
    pub(super) fn new(layout: &'l Layout) -> Room<'l> {
        Room { layout, pages: BTreeMap::new() }
    }

    /// Addresses of the pages.
    pub(super) fn pages(self) -> Vec<u64> {
        self.pages.into_keys().collect()
    }

    /// Takes exactly these bytes. `None`: some of them are not free.
    pub(super) fn take(&mut self, bytes: Range<u64>) -> Option<()> {
        let first = page_of(bytes.start);
        let last = page_of(bytes.end.checked_sub(1)?);
        for page in (first..=last).step_by(PAGE_BYTES as usize) {
            let whole = page..page.checked_add(PAGE_BYTES)?;
            let is_ours = self.pages.contains_key(&page);
            if !is_ours && !self.layout.is_free(&whole) {
                return None;
            }
            let used = self.pages.entry(page).or_default();
            let part = bytes.start.max(whole.start)..bytes.end.min(whole.end);
            if used.iter().any(|other| overlap(other, &part)) {
                return None;
            }
            used.push(part);
        }
        Some(())
    }

    /// Takes `length` bytes anywhere on the page of `address`. Returns their address.
    pub(super) fn take_on_page(&mut self, address: u64, length: u64) -> Option<u64> {
        let page = page_of(address);
        let end = page + PAGE_BYTES;
        let used = self.pages.get(&page)?;
        let is_unused = |start: &u64| {
            let bytes = *start..*start + length;
            bytes.end <= end && !used.iter().any(|other| overlap(other, &bytes))
        };
        let start = (page..end).step_by(ALIGNMENT as usize).find(is_unused)?;
        self.take(start..start + length)?;
        Some(start)
    }
}

fn page_of(address: u64) -> u64 {
    address - address % PAGE_BYTES
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
