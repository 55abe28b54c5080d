//! The last values of a number, drawn in a few characters.

use sampler_common::encode::text::bars::bars;
use std::collections::VecDeque;

/// Maximum number of kept values: the width of the widest column.
const MAX_VALUES: usize = 64;

/// Values, one for each snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct History(VecDeque<f64>);

impl History {
    /// Adds the latest value.
    pub(super) fn push(&mut self, value: f64) {
        if self.0.len() == MAX_VALUES {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// Draws the latest values in `columns` columns, the newest on the right. A missing value is a
    /// blank.
    pub(super) fn bars(&self, columns: usize) -> String {
        let shown = self.0.iter().skip(self.0.len().saturating_sub(columns));
        let blanks = columns.saturating_sub(shown.len());
        " ".repeat(blanks) + &bars(shown.copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_is_the_rightmost_bar() {
        let mut history = History::default();
        assert_eq!(history.bars(3), "   ");
        [0.0, 50.0, 100.0].into_iter().for_each(|value| history.push(value));
        assert_eq!(history.bars(4), " ▁▅█");
        assert_eq!(history.bars(2), "▅█");
        (0..1000).for_each(|_| history.push(7.0));
        assert_eq!((history.0.len(), history.bars(2)), (MAX_VALUES, "██".to_owned()));
        history.push(0.0);
        assert_eq!(history.bars(1), "▁", "nothing is the lowest bar, not a division by it");
    }
}
