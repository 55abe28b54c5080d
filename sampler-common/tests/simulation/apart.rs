//! Stacks that share no size: the samples of one carry no information about the other.

use std::fmt;

use sampler_common::estimate::{Confidence, Estimator, of_row};
use sampler_common::sampling::Strategy;

use super::draw::Program;
use super::program::Mix;
use super::table::Held;
use crate::common::SplitMix;

/// Calibrated bytes of a stack of small blocks, in a process with a stack of large blocks.
pub(crate) struct Apart {
    /// How often the interval covered the truth.
    pub(crate) held: Held,
    /// Root of the mean squared error, divided by the truth.
    pub(crate) error: f64,
    /// The same error, if all allocated bytes were shared out by the weights of samples.
    pub(crate) shared_out: f64,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Apart { held, error, shared_out } = self;
        write!(
            f,
            "apart: small blocks beside large ones, bernoulli, calibrated: covered {:.3}, error {error:.2} of the truth, {shared_out:.2} if shared out",
            held.share()
        )
    }
}

/// Simulates the mixed sizes: those below 10 kB are of one stack, the others of another. Both
/// stacks have `expected` samples together.
pub(crate) fn apart(seed: u64, expected: f64, runs: u32) -> Apart {
    let mix = &Mix::all()[3];
    let designs = mix.designs(Strategy::Bernoulli);
    let (small, large) = mix.counts(&designs, expected).into_iter().partition(|of| of.0 < 10_000);
    let program = Program { designs, stacks: vec![small, large] };
    let (empty, mut random) = (program.reference(), SplitMix(seed + 3000));
    let truth = program.truth(0, None).0;
    let all = truth + program.truth(1, None).0;
    let (mut held, mut errors) = (Held::default(), [0.0; 2]);
    for _ in 0..runs {
        let (rows, reference) = program.run(&empty, &mut random);
        let of =
            |estimator| of_row(&rows[0], &reference, estimator, Confidence::DEFAULT).alloc_space;
        let calibrated = of(Estimator::Calibrated);
        held.see(&calibrated, truth);
        let (own, total) = (of(Estimator::Weighted).value, reference.row().total().alloc_space.sum);
        let shared_out = if total > 0.0 { all * own / total } else { 0.0 };
        for (sum, value) in errors.iter_mut().zip([calibrated.value, shared_out]) {
            *sum += (value / truth - 1.0).powi(2) / f64::from(runs);
        }
    }
    Apart { held, error: errors[0].sqrt(), shared_out: errors[1].sqrt() }
}
