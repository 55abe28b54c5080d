//! What was allocated when, and what of it is still held: the totals of consecutive windows.
//!
//! Each window has the totals that a profile of it has. Its borders are those of time slots, so
//! that no sample is in two windows.

use super::scope::Scope;
use crate::pipeline::worker::Worker;
use crate::store::Selector;
use sampler_common::estimate::{Confidence, Estimator, Reference, everything};
use sampler_common::profile::{Kind, Quantities, Window};

/// Largest number of windows.
const MAX_WINDOWS: usize = 60;
/// Smallest number of windows, however much is held.
const MIN_WINDOWS: usize = 8;
/// Live samples that are examined for all windows together, which takes about 20 ms.
const MAX_LOOKS: u64 = 2_000_000;

/// A request for a history.
#[derive(Clone, Debug)]
pub struct HistoryRequest {
    /// Which processes.
    pub selector: Selector,
    /// How far back, nanoseconds.
    pub span_ns: u64,
}

/// A window of a history.
#[derive(Clone, Debug)]
pub struct HistoryWindow {
    /// The window's start and end.
    pub window: Window,
    reference: Reference,
}

impl HistoryWindow {
    /// The window's totals, as a profile of this window has them.
    pub fn totals(&self, confidence: Confidence) -> Quantities {
        let estimator = Estimator::default();
        let row = everything(&self.reference, estimator);
        Quantities::of_row(&row, &self.reference, estimator, confidence)
    }
}

impl Worker {
    pub(super) fn history(&self, request: &HistoryRequest) -> Result<Vec<HistoryWindow>, String> {
        let chosen = self.ingest.chosen(&request.selector)?;
        self.config.capabilities().whole("a history")?;
        let clocks = self.clock.now();
        let since_ns = clocks.now_ns.saturating_sub(request.span_ns);
        let most = (MAX_LOOKS / self.kernel.live.len().max(1)) as usize;
        let borders = self.ingest.windows.borders(since_ns, clocks.now_ns);
        let spans = joined(&borders, most.clamp(MIN_WINDOWS, MAX_WINDOWS));
        let windows = spans.into_iter().map(|[start_ns, end_ns]| {
            let window = self.ingest.windows.between(start_ns, end_ns, clocks.now_ns).ok()?;
            let gathered = self.gather_now(chosen.clone(), Kind::Live, &Scope::ALL, Some(&window));
            Some(HistoryWindow { window: gathered.window?, reference: gathered.reference })
        });
        Ok(windows.flatten().collect())
    }
}

/// Joins neighbouring slots into at most `most` windows of about equal length.
pub(super) fn joined(slots: &[[u64; 2]], most: usize) -> Vec<[u64; 2]> {
    let (Some([first, _]), Some([_, last])) = (slots.first(), slots.last()) else {
        return Vec::new();
    };
    let length = (last - first).div_ceil(most as u64).max(1);
    let mut spans: Vec<[u64; 2]> = Vec::new();
    for [start, end] in slots {
        match spans.last_mut() {
            // The start of a slot decides its window.
            Some(span) if (start - first) / length == (span[0] - first) / length => span[1] = *end,
            _ => spans.push([*start, *end]),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_joined_and_none_is_lost() {
        // Old slots are long.
        let mut slots = vec![[0, 60], [60, 120], [120, 130], [130, 140]];
        slots.extend((140..200).map(|second| [second, second + 1]));
        for most in [1, 2, 7, 60, 1000] {
            let spans = joined(&slots, most);
            assert!(spans.len() <= most, "{most}: {spans:?}");
            assert_eq!((spans[0][0], spans[spans.len() - 1][1]), (0, 200));
            assert!(spans.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{spans:?}");
        }
        assert_eq!(joined(&[], 60), [[0; 2]; 0]);
        assert_eq!(joined(&[[5, 6]], 60), [[5, 6]]);
    }
}
