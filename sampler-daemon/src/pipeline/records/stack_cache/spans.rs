//! The spans of a stack that are read to compare some of its words.

use sampler_common::limits::{
    CACHE_READ_BYTES, CACHE_READ_WORDS, CACHED_SPAN_BYTES, CACHED_SPAN_WORDS, MAX_CACHED_SPANS,
};
use sampler_common::wire::CachedSpan;

/// Words whose reading costs as much as the start of another span.
const MAX_GAP_WORDS: u16 = (CACHED_SPAN_BYTES / CACHE_READ_BYTES) as u16;

/// Spans that cover certain words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spans {
    spans: Vec<CachedSpan>,
}

impl Spans {
    /// The cheapest spans that cover the words at these places (words above the stack pointer). If
    /// these are too many spans, gaps are read too.
    /// `None` if the words to read exceed the room.
    pub(super) fn of(places: &[u16]) -> Option<Spans> {
        let mut sorted = places.to_vec();
        sorted.sort_unstable();
        let mut near = MAX_GAP_WORDS;
        loop {
            let spans = Spans { spans: joined(&sorted, near) };
            if spans.spans.len() <= MAX_CACHED_SPANS {
                return (spans.words() <= CACHE_READ_WORDS).then_some(spans);
            }
            if usize::from(near) > CACHED_SPAN_WORDS {
                return None;
            }
            near *= 2;
        }
    }

    /// The spans.
    pub(super) fn as_slice(&self) -> &[CachedSpan] {
        &self.spans
    }

    /// Words that are read.
    pub(super) fn words(&self) -> usize {
        self.spans.iter().map(|span| usize::from(span.words)).sum()
    }

    /// The index of the word at a place among the words that are read.
    pub(super) fn index(&self, place: u16) -> Option<u16> {
        let mut before = 0;
        for span in &self.spans {
            match place.checked_sub(span.first) {
                Some(within) if within < span.words => return Some(before + within),
                _ => before += span.words,
            }
        }
        None
    }
}

/// Spans of at most [`CACHED_SPAN_WORDS`] that cover all places, which are sorted. A span continues
/// over gaps of fewer than `near` words.
fn joined(places: &[u16], near: u16) -> Vec<CachedSpan> {
    let mut spans: Vec<CachedSpan> = Vec::new();
    for place in places {
        if let Some(last) = spans.last_mut() {
            let words = usize::from(place - last.first) + 1;
            if words <= CACHED_SPAN_WORDS && words <= usize::from(last.words) + usize::from(near) {
                last.words = words as u16;
                continue;
            }
        }
        spans.push(CachedSpan { first: *place, words: 1 });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spans_index_every_word_they_read(
            places in proptest::collection::vec(0..3000u16, 1..128)
        ) {
            let Some(spans) = Spans::of(&places) else { return Ok(()) };
            prop_assert!(spans.as_slice().len() <= MAX_CACHED_SPANS && spans.words() <= CACHE_READ_WORDS);
            let read: Vec<u16> =
                spans.as_slice().iter().flat_map(|span| span.first..span.first + span.words).collect();
            for place in places {
                prop_assert_eq!(spans.index(place).map(|index| read[usize::from(index)]), Some(place));
            }
            for span in spans.as_slice() {
                prop_assert!((1..=CACHED_SPAN_WORDS).contains(&usize::from(span.words)));
            }
        }
    }

    #[test]
    fn words_near_each_other_are_read_at_once() {
        let spans = |places: &[u16]| Spans::of(places).map(|spans| spans.spans);
        let span = |first, words| CachedSpan { first, words };
        assert_eq!(spans(&[7, 3, 30]), Some(vec![span(3, 28)]));
        assert_eq!(
            spans(&[3, 3 + MAX_GAP_WORDS, 4 + 2 * MAX_GAP_WORDS]),
            Some(vec![span(3, MAX_GAP_WORDS + 1), span(4 + 2 * MAX_GAP_WORDS, 1)])
        );
        // Twenty words far from each other: four of them in one span.
        let far: Vec<u16> = (0..20).map(|place| place * 70).collect();
        assert_eq!(spans(&far).map(|spans| spans.len()), Some(5));
        // The room ends.
        let all: Vec<u16> = (0..128).map(|place| place * 100).collect();
        assert_eq!(spans(&all), None);
        assert_eq!(spans(&[0, u16::MAX]), Some(vec![span(0, 1), span(u16::MAX, 1)]));
    }
}
