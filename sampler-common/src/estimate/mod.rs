//! Estimates: moments that add, and the one function that turns them into an interval.
//!
//! Rows (of a stack, a process, a size class, a window) carry [`Moments`]; rows add; only at the
//! very end does [`weighted()`] make an [`Estimate`] of summed moments. Bounds are never added.

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
mod room;
pub mod row;
pub mod sample;
pub mod strategies;
pub mod survival;
pub mod trials;
pub mod turnover;
mod unseen;
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

/// How an [`Estimate`] was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Horvitz–Thompson sum with a gamma interval.
    Weighted,
    /// Failed trials of a geometric countdown with a negative binomial interval.
    FailedTrials,
    /// Horvitz–Thompson sum adjusted to exact totals, with a gamma interval of its residual variance.
    Calibrated,
    /// Horvitz–Thompson sum of what was seen in windows, with the interval of what these differ in. With too few of them there is no upper end.
    Clusters,
    /// Points of a stride, summed, or nothing where nothing would be sampled. There is no upper end: nothing random bounds
    /// what was passed by.
    Stride,
    /// Everything was counted: the interval is the number itself; of what may belong elsewhere it is from nothing to all.
    Exact,
}

impl Method {
    /// Every one.
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

/// A number with its interval. 0 ≤ `low` ≤ `value` ≤ `high`, all finite but the `high` of [`Method::Stride`], of
/// [`Method::Clusters`] with too few windows, and of what is held where nobody knows that ([`Reference::held_unknown`]), which is +∞.
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
    /// Samples it rests on.
    pub samples: u64,
    /// How it was made.
    pub method: Method,
}

impl Estimate {
    /// Whether it has an interval, and not only a lower end.
    pub fn has_interval(&self) -> bool {
        self.high.is_finite()
    }
}

/// `±12%`: the larger distance to an end of the interval. Beyond 999 % the number says nothing more. `none` where
/// there is no interval.
pub fn plus_minus(estimate: &Estimate) -> String {
    if !estimate.has_interval() {
        return "none".to_owned();
    }
    let half = (estimate.high - estimate.value).max(estimate.value - estimate.low);
    let percent = 100.0 * half / estimate.value;
    match percent {
        _ if estimate.value <= 0.0 => String::new(),
        p if p < 0.95 => format!("±{p:.1}%"),
        p if p <= 999.0 => format!("±{p:.0}%"),
        _ => ">999%".to_owned(),
    }
}
