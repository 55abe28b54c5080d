//! Quartiles of a set of measurements.

use serde_json::{Value, json};

/// Minimum, quartiles and maximum of `n` values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// How many.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// First quartile.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub high: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// The spread of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Spread {
            n: values.len(),
            min: quantile(&values, 0.0),
            low: quantile(&values, 0.25),
            median: quantile(&values, 0.5),
            high: quantile(&values, 0.75),
            max: quantile(&values, 1.0),
        }
    }

    /// As a JSON object.
    pub fn json(&self) -> Value {
        let Spread { n, min, low, median, high, max } = self;
        json!({ "n": n, "min": min, "p25": low, "median": median, "p75": high, "max": max })
    }
}

/// A quantile, linear between neighbours: type 7 of Hyndman and Fan, 1996. NaN without values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * position.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.n, spread.min, spread.max), (4, 1.0, 4.0));
        assert_eq!((spread.low, spread.median, spread.high), (1.75, 2.5, 3.25));
        assert_eq!(Spread::of([7.0]).median, 7.0);
    }
}
