//! The interval that gives a wanted number of samples.
//!
//! Plainly: a program that allocates a_Z objects of mean size s_Z in class Z gives Σ a_Z·π(s_Z; R)
//! samples. This number falls as R grows, so exactly one R gives the wanted number. For small
//! objects R is bytes/samples. A large object counts once, however many sample points fall into it.

use super::design::Design;
use super::rate::MAX_INTERVAL_BYTES;
use super::strategy::Strategy;

/// Halvings of the logarithm's range, [1, 2^32]: enough for a whole number of bytes.
const STEPS: u32 = 64;

/// Interval in bytes (1 … 2^32) at which `strategy` is expected to take `samples` of the given
/// `classes` of (objects, bytes).
///
/// If no interval does, the nearer end of the range. `None` if nothing was allocated, or `samples`
/// is not positive.
pub fn interval_for(samples: f64, strategy: Strategy, classes: &[(f64, f64)]) -> Option<u64> {
    let objects: f64 = classes.iter().map(|(objects, _)| objects).sum();
    let bytes: f64 = classes.iter().map(|(_, bytes)| bytes).sum();
    if objects <= 0.0 || samples.is_nan() || samples <= 0.0 {
        return None;
    }
    // Adaptive has the budget of geometric.
    let strategy = if strategy == Strategy::Adaptive { Strategy::Geometric } else { strategy };
    let expected = |interval: u64| -> f64 {
        let Some(design) = Design::from_interval(strategy, interval, bytes / objects) else {
            return f64::INFINITY;
        };
        let of_class = |(objects, bytes): &(f64, f64)| {
            let size = if *objects > 0.0 { bytes / objects } else { 0.0 };
            // A stride samples a request of s bytes with min(1, s/R).
            let inclusion = design.inclusion(size.round() as u64);
            objects * inclusion.unwrap_or_else(|| (size / design.interval()).min(1.0))
        };
        classes.iter().map(of_class).sum()
    };
    let (mut low, mut high) = (0.0f64, (MAX_INTERVAL_BYTES as f64).ln());
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if expected(middle.exp().round() as u64) > samples { low = middle } else { high = middle }
    }
    Some((high.exp().round() as u64).clamp(1, MAX_INTERVAL_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_share_the_bytes() {
        let classes = [(1e6, 64e6), (1e3, 16e6)];
        for strategy in [Strategy::Geometric, Strategy::Poisson, Strategy::Adaptive] {
            let interval = interval_for(80.0, strategy, &classes).unwrap() as f64;
            assert!((interval / 1e6 - 1.0).abs() < 0.01, "{strategy:?}: {interval}");
        }
        let bernoulli = interval_for(80.0, Strategy::Bernoulli, &classes).unwrap() as f64;
        assert!((bernoulli / 1e6 - 1.0).abs() < 0.01, "{bernoulli}");
    }

    #[test]
    fn large_objects_count_once() {
        // 100 blocks of 16 MiB: nearly all are sampled at any usual interval, and 50 only at a far
        // longer one.
        let classes = [(100.0, 1600.0 * 1048576.0)];
        let interval = interval_for(50.0, Strategy::Geometric, &classes).unwrap();
        let inclusion = Design::from_interval(Strategy::Geometric, interval, 1.0)
            .and_then(|design| design.inclusion(16 << 20))
            .unwrap();
        assert!((inclusion - 0.5).abs() < 1e-3, "{inclusion}");
    }

    #[test]
    fn intervals_for_a_wanted_rate_stay_in_the_domain() {
        assert_eq!(interval_for(10.0, Strategy::Geometric, &[(0.0, 0.0)]), None);
        assert_eq!(interval_for(f64::NAN, Strategy::Geometric, &[(1.0, 1.0)]), None);
        assert_eq!(interval_for(1e9, Strategy::Geometric, &[(1e3, 1e6)]), Some(1));
        assert_eq!(interval_for(1e-9, Strategy::Geometric, &[(1e3, 1e6)]), Some(1 << 32));
        assert_eq!(interval_for(1e9, Strategy::Stride, &[(1e3, 1e6)]), Some(64));
    }
}
