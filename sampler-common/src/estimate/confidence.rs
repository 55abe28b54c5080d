//! A confidence level.

/// A confidence level in (0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence(f64);

/// A confidence outside (0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceError(pub f64);

impl std::fmt::Display for ConfidenceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "confidence {} is not between 0 and 1 (try 0.95)", self.0)
    }
}

impl std::error::Error for ConfidenceError {}

impl Confidence {
    /// 95 %.
    pub const DEFAULT: Confidence = Confidence(0.95);

    /// A confidence level.
    ///
    /// # Errors
    ///
    /// `value` does not lie strictly between 0 and 1.
    pub fn new(value: f64) -> Result<Confidence, ConfidenceError> {
        // Written so that NaN fails too. 1 − 1e−15 still leaves a tail that quantiles distinguish
        // from 0.
        if value > 0.0 && value <= 1.0 - 1e-15 {
            Ok(Confidence(value))
        } else {
            Err(ConfidenceError(value))
        }
    }

    /// The level.
    pub fn level(self) -> f64 {
        self.0
    }

    /// α = 1 − level.
    pub fn alpha(self) -> f64 {
        1.0 - self.0
    }

    /// ln(2/α): the hazard that passes without a sample with probability α/2, as rarely as either
    /// end misses.
    pub(super) fn budget(self) -> f64 {
        -(self.alpha() / 2.0).ln()
    }
}
