//! Numbers drawn as bars, one column each.

/// The bars, from zero to the largest value.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar for each value. The largest value is a full bar. The bars show the shape; a number beside
/// them must show the size.
pub fn bars(values: impl Iterator<Item = f64> + Clone) -> String {
    let largest = values.clone().fold(0.0, f64::max);
    let bar = |value: f64| {
        let share = if largest > 0.0 { value / largest } else { 0.0 };
        BARS[((share * 7.0).round() as usize).min(7)]
    };
    values.map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_is_a_full_bar() {
        assert_eq!(bars([0.0, 50.0, 100.0].into_iter()), "▁▅█");
        assert_eq!(bars([7.0; 3].into_iter()), "███");
        assert_eq!(bars([0.0].into_iter()), "▁", "nothing is the lowest bar, not a division by it");
        assert_eq!(bars(std::iter::empty()), "");
    }
}
