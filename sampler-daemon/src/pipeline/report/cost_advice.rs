//! What would make profiling cost less, said where it costs much.

use crate::pipeline::command::ProfileRequest;
use crate::pipeline::cost::Unread;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use sampler_common::cost::{Program, Range, plus_minus};
use sampler_common::profile::Kind;
use sampler_common::units::human_cpu_time;

/// Share of a CPU below which nobody need think of it.
const WORTH_A_WORD: f64 = 0.05;

impl Worker {
    /// That most of the cost is of frees, which a profile of what was allocated does without: a child of a server frees thousands of blocks
    /// when it exits that its parent had allocated.
    pub(super) fn frees_note(
        &self,
        of: &[ProcessId],
        cost: &Unread,
        request: &ProfileRequest,
    ) -> Option<String> {
        // With a budget the cost is bounded, and what frees are probed is its own affair.
        if request.kind != Kind::Alloc || self.config.windows.is_some() {
            return None;
        }
        let frees = self.prices.charge(&cost.work_of(Program::Free))?.range(request.confidence);
        note(&frees, &cost.spent_ns()?, self.duration_ns(of) as f64)
    }
}

fn note(frees: &Range, all: &Range, duration_ns: f64) -> Option<String> {
    let is_most = frees.value > all.value / 2.0;
    (is_most && frees.value > WORTH_A_WORD * duration_ns).then(|| {
        let (time, error) = (human_cpu_time(frees.value), plus_minus(frees));
        format!("{time}{error} of the cost is of frees (samplerd --no-live probes none)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_where_it_matters() {
        let range = |value: f64| Range { value, low: 0.9 * value, high: 1.1 * value };
        let text = note(&range(9e9), &range(10e9), 60e9).unwrap();
        assert_eq!(text, "9.00 s ±10% of the cost is of frees (samplerd --no-live probes none)");
        assert_eq!(note(&range(4e9), &range(10e9), 60e9), None, "allocating costs more");
        assert_eq!(note(&range(9e6), &range(10e6), 60e9), None, "a trifle");
    }
}
