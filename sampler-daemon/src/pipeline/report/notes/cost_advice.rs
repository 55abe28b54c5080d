//! Advice on how to make profiling cheaper, given where profiling costs much.

use crate::pipeline::command::ProfileRequest;
use crate::pipeline::cost::UnreadCost;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use sampler_common::cost::{Program, Range};
use sampler_common::note::Note;
use sampler_common::profile::Kind;

/// Share of a CPU below which no advice is given.
const MIN_ADVISED_CPU_SHARE: f64 = 0.05;

impl Worker {
    /// The note that most of the cost is of frees. A profile of allocations does not need frees.
    /// For example, a child of a server frees thousands of its parent's blocks when it exits.
    pub(in crate::pipeline::report) fn frees_note(
        &self,
        of: &[ProcessId],
        cost: &UnreadCost,
        request: &ProfileRequest,
    ) -> Option<Note> {
        // With windows, the budget bounds the cost, including that of frees.
        if request.kind != Kind::Alloc || self.config.windows.is_some() {
            return None;
        }
        let frees =
            self.prices.charge(&cost.work.only(Program::Free))?.cpu.range(request.confidence);
        let is_noted =
            is_worth_noting(&frees, &cost.report.spent_ns?, self.ingest.duration_ns(of) as f64);
        is_noted.then_some(Note::Frees(frees))
    }
}

fn is_worth_noting(frees: &Range, all: &Range, duration_ns: f64) -> bool {
    frees.value > all.value / 2.0 && frees.value > MIN_ADVISED_CPU_SHARE * duration_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frees_are_noted_only_if_they_dominate_a_large_cost() {
        let range = |value: f64| Range { value, low: 0.9 * value, high: 1.1 * value };
        assert!(is_worth_noting(&range(9e9), &range(10e9), 60e9));
        assert!(!is_worth_noting(&range(4e9), &range(10e9), 60e9), "allocating costs more");
        assert!(!is_worth_noting(&range(9e6), &range(10e6), 60e9), "a trifle");
    }
}
