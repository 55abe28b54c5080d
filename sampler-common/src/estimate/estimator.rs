//! Which estimator is valid for which strategy.

use crate::sampling::Strategy;

/// How samples become estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Estimator {
    /// Every sample stands for 1/π allocations like it (Horvitz–Thompson). Points of a stride are
    /// summed.
    #[default]
    Weighted,
    /// Failed trials of a geometric countdown.
    FailedTrials,
    /// Weighted, then adjusted to the exact totals of each size class.
    Calibrated,
    /// No estimation: everything was counted ([`crate::profile::Kind::Mapped`]). A user cannot
    /// choose it.
    Exact,
}

/// A pair of strategy and estimator that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("estimator {} does not exist for strategy {} (use {})", .estimator.name(), .strategy.name(), remedy(*.strategy))]
pub struct NoSuchPair {
    /// The chosen estimator.
    pub estimator: Estimator,
    /// The strategy that samples were taken with.
    pub strategy: Strategy,
}

fn remedy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Geometric | Strategy::Bernoulli | Strategy::Adaptive => "weighted or calibrated",
        Strategy::Poisson | Strategy::External => "weighted",
        Strategy::Stride => "none: its points are summed, without an interval",
    }
}

impl Estimator {
    /// Every estimator of samples.
    pub const ALL: [Estimator; 3] =
        [Estimator::Weighted, Estimator::FailedTrials, Estimator::Calibrated];

    /// The name on command lines, in the protocol and in json.
    pub const fn name(self) -> &'static str {
        match self {
            Estimator::Weighted => "weighted",
            Estimator::FailedTrials => "failed-trials",
            Estimator::Calibrated => "calibrated",
            Estimator::Exact => "exact",
        }
    }

    /// The estimator of this name.
    pub fn from_name(name: &str) -> Option<Estimator> {
        let mut all = Estimator::ALL.into_iter().chain([Estimator::Exact]);
        all.find(|estimator| estimator.name() == name)
    }

    /// The estimator of this name, if a user can choose it.
    ///
    /// # Errors
    /// One line with the valid names.
    pub fn parse(name: &str) -> Result<Estimator, String> {
        Estimator::ALL.into_iter().find(|estimator| estimator.name() == name).ok_or_else(|| {
            format!("estimator {name:?} is unknown (use weighted, failed-trials or calibrated)")
        })
    }

    /// Checks that the estimator is valid for samples of `strategy`.
    ///
    /// # Errors
    /// The pair does not exist. Weighted is valid for all strategies but stride. Failed trials is
    /// valid for geometric only, because its law is that of a geometric countdown. Calibrated is
    /// valid for strategies whose samples have one π each: geometric, bernoulli and adaptive. A
    /// process that samples by itself has no exact totals for calibration: in a calibrated profile
    /// it is weighted.
    pub fn check(self, strategy: Strategy) -> Result<(), NoSuchPair> {
        let exists = match self {
            Estimator::Weighted => strategy != Strategy::Stride,
            Estimator::FailedTrials => strategy == Strategy::Geometric,
            Estimator::Exact => false,
            Estimator::Calibrated => !matches!(strategy, Strategy::Poisson | Strategy::Stride),
        };
        if exists { Ok(()) } else { Err(NoSuchPair { estimator: self, strategy }) }
    }
}
