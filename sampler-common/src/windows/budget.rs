//! The share of CPU time that windows may cost.

/// A share of CPU time, in (0, 1].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Budget(f64);

impl Budget {
    /// The smallest budget: it gives one window in about ten minutes of CPU time.
    pub const MIN_SHARE: f64 = 1e-5;

    /// The budget of a text such as `1%` or `0.5 %`.
    ///
    /// # Errors
    /// One line, if the text is no percentage above 0 and up to 100, or a percentage that cannot be
    /// kept.
    pub fn parse(text: &str) -> Result<Budget, String> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let Some(percent) = number.and_then(|number| number.parse::<f64>().ok()) else {
            return Err("must be a percentage of the process's CPU time, as 1%".to_owned());
        };
        // Not "<= 0": NaN is no budget either.
        if !(percent > 0.0 && percent <= 100.0) {
            return Err("must be above 0% and at most 100%".to_owned());
        }
        if percent / 100.0 < Budget::MIN_SHARE {
            return Err(
                "cannot be kept: the first interval would take days (give at least 0.001%)"
                    .to_owned(),
            );
        }
        Ok(Budget(percent / 100.0))
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.0
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = (self.0 * 1e6).round() / 1e4;
        write!(f, "{percent} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_a_budget() {
        for (text, share) in [("1%", 0.01), ("0.5 %", 0.005), ("100%", 1.0)] {
            assert!((Budget::parse(text).unwrap().share() - share).abs() < 1e-12, "{text}");
        }
        assert_eq!(Budget::parse("2.5%").unwrap().to_string(), "2.5 %");
    }

    #[test]
    fn invalid_budgets_are_refused() {
        let cases = [
            ("0%", "above 0%"),
            ("-1%", "above 0%"),
            ("101%", "at most 100%"),
            ("NaN%", "above 0%"),
            ("1", "as 1%"),
            ("one%", "as 1%"),
            ("0.0001%", "give at least 0.001%"),
        ];
        for (text, expected) in cases {
            let error = Budget::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
