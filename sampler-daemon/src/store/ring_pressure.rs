//! Back-pressure in the kernel: when and how far the kernel side has raised a process's interval,
//! because the daemon had not read the process's records in time.

/// All raises so far, summarized.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RingPressure {
    /// How many times the interval was raised from an unraised one.
    pub times: u64,
    /// `CLOCK_MONOTONIC` before the last raise, nanoseconds: the earliest time at which the raise
    /// can have begun.
    pub from_ns: u64,
    /// End of the last raise; `None`: the interval is still raised.
    pub until_ns: Option<u64>,
    /// Largest factor of all raises.
    pub factor: f64,
}

impl RingPressure {
    /// Notes that the interval is `factor` times as long, and was not raised until `since_ns`.
    pub fn raise(&mut self, since_ns: u64, factor: f64) {
        if self.times == 0 || self.until_ns.is_some() {
            self.times += 1;
            (self.from_ns, self.until_ns) = (since_ns, None);
        }
        self.factor = self.factor.max(factor);
    }

    /// Notes that the interval is not raised any more.
    pub fn end(&mut self, now_ns: u64) {
        if self.times > 0 && self.until_ns.is_none() {
            self.until_ns = Some(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_raises_count_once() {
        let mut of = RingPressure::default();
        of.end(1);
        assert_eq!(of, RingPressure::default());
        of.raise(5, 4.0);
        of.raise(7, 2.0);
        assert_eq!((of.times, of.from_ns, of.until_ns, of.factor), (1, 5, None, 4.0));
        of.end(9);
        of.end(10);
        assert_eq!((of.times, of.until_ns), (1, Some(9)));
        of.raise(20, 2.0);
        assert_eq!((of.times, of.from_ns, of.until_ns, of.factor), (2, 20, None, 4.0));
    }
}
