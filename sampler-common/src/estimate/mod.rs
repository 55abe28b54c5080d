//! Estimates: moments that add, and the functions that turn moments into an interval.
//!
//! Rows (of a stack, a process, a size class, a window) carry [`Moments`]. Rows add. Only at the
//! end does [`weighted()`] make an [`Estimate`] from summed moments. Bounds are never added.

mod binomial;
pub mod calibrated;
pub mod clusters;
pub mod confidence;
pub mod difference;
pub mod domain;
pub mod epoch;
pub mod estimator;
pub mod failed_trials;
mod gamma;
pub mod moments;
pub mod of_row;
pub mod plan;
mod quantity;
pub mod ratio;
pub mod row;
pub mod sample;
pub mod strategies;
pub mod survival;
pub mod trials;
pub mod turnover;
mod unseen;
mod unseen_capacity;
pub mod weighted;

pub use clusters::{Cluster, Clusters, MIN_WINDOWS, PROBE_EFFECT_NS};
pub use confidence::Confidence;
pub use difference::{Difference, Side, benjamini_hochberg, difference};
pub use domain::DomainError;
pub use epoch::{Epoch, Unseen};
pub use estimator::{Estimator, NoSuchPair};
pub use failed_trials::{Edges, around, failed_trials, of_trials};
pub use moments::{Moments, RowMoments};
pub use of_row::{RowEstimates, everything, of_row, unsampled};
pub use plan::Plan;
pub use row::{Reference, Row, Stratum, StratumTotals};
pub use sample::Sample;
pub use strategies::{Strategies, Variances, exponential_error, strategies};
pub use survival::{Median, Share, Step, Survival, Weights};
pub use trials::Trials;
pub use turnover::{Growth, Turnover, growth};

pub use weighted::weighted;

use crate::units::half_width;

/// How an [`Estimate`] was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Horvitz–Thompson sum with a gamma interval.
    Weighted,
    /// Failed trials of a geometric countdown with a negative binomial interval.
    FailedTrials,
    /// Horvitz–Thompson sum adjusted to exact totals, with a gamma interval of its residual
    /// variance.
    Calibrated,
    /// Horvitz–Thompson sum over windows, with an interval from the differences between windows.
    /// With too few windows the interval has no upper end.
    Clusters,
    /// Sum of the points of a stride, or 0 where nothing would be sampled.
    ///
    /// The interval has no upper end: the missed bytes are not random, so nothing bounds them.
    Stride,
    /// Everything was counted: the interval is the number itself. For a number that may belong
    /// elsewhere, the interval is from 0 to the number.
    Exact,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 6] = [
        Method::Weighted,
        Method::FailedTrials,
        Method::Calibrated,
        Method::Clusters,
        Method::Stride,
        Method::Exact,
    ];

    /// The name in the protocol, in json and in csv.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Weighted => "weighted",
            Method::FailedTrials => "failed-trials",
            Method::Calibrated => "calibrated",
            Method::Clusters => "clusters",
            Method::Stride => "stride",
            Method::Exact => "exact",
        }
    }

    /// The method of this name.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// A number with its interval: 0 ≤ `low` ≤ `value` ≤ `high`, all finite except some `high`.
///
/// `high` is +∞ for [`Method::Stride`], for [`Method::Clusters`] with too few windows, and for held
/// memory that is unknown ([`Reference::held_unknown`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The unbiased estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Confidence of the interval.
    pub confidence: Confidence,
    /// Samples behind the estimate.
    pub samples: u64,
    /// How the estimate was computed.
    pub method: Method,
}

impl Estimate {
    /// Whether the interval has both ends, not only a lower one.
    pub fn has_interval(&self) -> bool {
        self.high.is_finite()
    }
}

/// The interval as [`half_width`] writes it: empty for 0, and `none` without an interval.
pub fn plus_minus(estimate: &Estimate) -> String {
    match estimate {
        of if !of.has_interval() => "none".to_owned(),
        of if of.value <= 0.0 => String::new(),
        of => half_width(of.value, of.low, of.high),
    }
}
