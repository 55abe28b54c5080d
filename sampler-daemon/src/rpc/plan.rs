//! `Plan`: arithmetic, as in `sampler plan` without a daemon.

use super::v1;
use sampler_common::estimate::{Confidence, DomainError, Edges, Estimate, Plan, failed_trials};

/// What the interval will give, or which number is wrong.
pub(super) fn plan(
    of: &v1::PlanRequest,
    confidence: Confidence,
) -> Result<v1::PlanResponse, DomainError> {
    let plan = Plan::new(of.interval_bytes, of.bytes, of.size.max(1))?;
    let trials = match of.samples {
        0 => None,
        samples => {
            let interval = of.interval_bytes as f64;
            Some(failed_trials(samples, of.tail_bytes, interval, Edges::Aligned, confidence)?)
        }
    };
    Ok(v1::PlanResponse {
        expected_samples: plan.expected_samples(),
        hit_probability: plan.allocation_hit_probability(),
        bytes_hit_probability: plan.hit_probability(),
        relative_error: plan.relative_error(),
        relative_error_if_seen: plan.relative_error_if_seen(),
        relative_deviation: plan.relative_deviation(),
        variance: plan.variance(),
        variance_bound: plan.variance_bound(),
        failed_trials: trials.map(|Estimate { low, high, value, .. }| v1::FailedTrials {
            low,
            high,
            value,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_of_the_dotnet_document() {
        let request = v1::PlanRequest {
            interval_bytes: 100 << 10,
            bytes: 1 << 30,
            samples: 8,
            tail_bytes: 10_908,
            ..Default::default()
        };
        let trials = plan(&request, Confidence::DEFAULT).unwrap().failed_trials.unwrap();
        assert!((trials.low - 364_574.0).abs() <= 1.0, "{trials:?}");
        assert!((trials.high - 1_487_778.0).abs() <= 1.0, "{trials:?}");
    }

    #[test]
    fn a_plan_with_an_interval_of_0_is_refused() {
        let request = v1::PlanRequest { interval_bytes: 0, bytes: 1, ..Default::default() };
        assert!(plan(&request, Confidence::DEFAULT).is_err());
    }
}
