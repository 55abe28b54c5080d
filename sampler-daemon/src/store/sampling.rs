//! A request for the sampling of processes.

use sampler_common::sampling::rate::MAX_INTERVAL_BYTES;
use sampler_common::sampling::{Design, Rate, Strategy};

/// A request for sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The strategy.
    pub strategy: Strategy,
    /// Mean bytes between samples, 1 to 2^32.
    pub interval_bytes: u64,
    /// Bernoulli: one sample in this number of allocations, instead of a number derived from the
    /// interval.
    pub one_in: Option<u64>,
    /// Wanted samples per second. The interval follows the program, and begins with
    /// `interval_bytes`.
    pub samples_per_second: Option<f64>,
}

impl Sampling {
    /// Geometric sampling at `interval_bytes`.
    pub fn geometric(interval_bytes: u64) -> Sampling {
        Sampling {
            strategy: Strategy::Geometric,
            interval_bytes,
            one_in: None,
            samples_per_second: None,
        }
    }

    /// Checks the request. The error says in one line what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let interval = self.interval_bytes;
        if self.strategy == Strategy::External {
            return Err("strategy external: is up to the process itself (use another one)".into());
        }
        if Design::from_interval(self.strategy, interval, 1.0).is_none() {
            return Err(match self.strategy {
                Strategy::Stride if interval > 0 && interval <= MAX_INTERVAL_BYTES => {
                    format!("interval {interval}: a stride must be 64 to 4294967296 bytes")
                }
                _ => format!("interval {interval}: must be 1 to 4294967296 bytes"),
            });
        }
        if let Some(calls) = self.one_in {
            if self.strategy != Strategy::Bernoulli {
                let name = self.strategy.name();
                return Err(format!("one in {calls}: is for strategy bernoulli, not for {name}"));
            }
            if self.samples_per_second.is_some() {
                return Err(format!(
                    "one in {calls}: a number of samples per second is asked for as well (give one of the two)"
                ));
            }
            if Rate::from_interval(calls).is_none() {
                return Err(format!("one in {calls}: must be 1 to 4294967296 allocations"));
            }
        }
        match self.samples_per_second {
            Some(samples) if !(samples > 0.0 && samples <= 1e6) => {
                Err(format!("{samples} samples per second: must be above 0 and at most 1000000"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sampling_requests_are_refused() {
        let ask = |strategy, interval_bytes, one_in, samples_per_second| {
            Sampling { strategy, interval_bytes, one_in, samples_per_second }.check()
        };
        assert_eq!(ask(Strategy::Geometric, 1, None, None), Ok(()));
        assert_eq!(ask(Strategy::Bernoulli, 4096, Some(100), None), Ok(()));
        for (wrong, word) in [
            (ask(Strategy::Geometric, 0, None, None), "interval 0"),
            (ask(Strategy::Stride, 63, None, None), "stride"),
            (ask(Strategy::Poisson, 4096, Some(2), None), "bernoulli"),
            (ask(Strategy::Bernoulli, 4096, Some(0), None), "one in 0"),
            (ask(Strategy::Bernoulli, 4096, Some(2), Some(5.0)), "one of the two"),
            (ask(Strategy::Geometric, 4096, None, Some(f64::NAN)), "per second"),
            (ask(Strategy::Geometric, 4096, None, Some(0.0)), "per second"),
        ] {
            let error = wrong.expect_err(word);
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    }
}
