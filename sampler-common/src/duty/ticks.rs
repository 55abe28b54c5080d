//! What a tick takes, measured again and again.
//!
//! # Derivation
//!
//! Two runs of a loop that does nothing but look at the clock: in the one a timer of period P ticks, in the other it does not. Steps that took
//! longer than a step can are gaps, in which something else had the CPU. With φ the part of the time that is no gap, a timer that takes X of every P
//! leaves φ₁ = φ₀·(1 − X/P), whatever else interrupts both runs:
//!
//! ```text
//! X = P·(1 − φ₁/φ₀)
//! ```
//!
//! It is a mean, as it has to be: where now and then the host keeps the CPU for longer, the program loses that as well. The host has better and
//! worse minutes, so that looks are averaged with a weight that fades, and what they differ in makes the error.

/// How much a look weighs in what is expected of the next window.
const WEIGHT: f64 = 0.15;
/// What the cache and the predictors of a program make different, of X.
const MODEL: f64 = 0.15;

/// What a loop saw that looked at the clock all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watched {
    /// Time that was its own, nanoseconds.
    own_ns: f64,
    /// Time in gaps, nanoseconds.
    gaps_ns: f64,
}

impl Watched {
    /// A step longer than this is a gap: looking at the clock takes 20 to 100 ns.
    const STEP_NS: f64 = 1_000.0;

    /// A step that took so long, while a timer of this period may have ticked. In a gap of a whole period somebody else was scheduled: what
    /// is lost there no timer has taken.
    pub fn step(&mut self, ns: f64, period_ns: f64) {
        if ns < Watched::STEP_NS {
            self.own_ns += ns;
        } else if ns < period_ns {
            self.gaps_ns += ns;
        }
    }

    fn share(&self) -> Option<f64> {
        (self.own_ns > 0.0).then(|| self.own_ns / (self.own_ns + self.gaps_ns))
    }
}

/// X, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    looks: u32,
    mean: f64,
    /// Variance of one look.
    variance: f64,
}

impl Ticks {
    /// Takes in a look: a run without the timer and one with it.
    pub fn look(&mut self, without: Watched, with: Watched, period_ns: f64) {
        let Some((off, on)) = without.share().zip(with.share()) else { return };
        let ns = period_ns * (1.0 - on / off);
        self.looks += 1;
        // As long as there are few of them all weigh the same.
        let weight = f64::from(self.looks).recip().max(WEIGHT);
        let off = ns - self.mean;
        self.mean += weight * off;
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }

    /// X, nanoseconds.
    pub fn ns(&self) -> f64 {
        self.mean.max(0.0)
    }

    /// Its standard error.
    pub fn error_ns(&self) -> f64 {
        let looks = f64::from(self.looks).clamp(2.0, 2.0 / WEIGHT - 1.0);
        let of_looks = (self.variance / (looks - 1.0)).sqrt();
        of_looks.hypot(MODEL * self.ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: f64 = 200_000.0;

    /// A run of 2 ms in which a tick takes `tick` and something else 3 % of the time.
    fn watched(tick: f64) -> Watched {
        let mut watched = Watched::default();
        for _ in 0..10 {
            let rest = PERIOD - tick;
            watched.step(tick, PERIOD);
            watched.step(0.03 * rest, PERIOD);
            (0..1000).for_each(|_| watched.step(0.00097 * rest, PERIOD));
        }
        watched
    }

    #[test]
    fn what_a_tick_takes_is_found_whatever_else_interrupts() {
        let mut ticks = Ticks::default();
        (0..5).for_each(|_| ticks.look(watched(0.0), watched(30_000.0), PERIOD));
        assert!((ticks.ns() - 30_000.0).abs() < 1.0, "{ticks:?}");
        assert!((ticks.error_ns() / ticks.ns() - MODEL).abs() < 1e-3, "{ticks:?}");
    }

    #[test]
    fn somebody_elses_turn_is_no_tick() {
        let (mut with, mut ticks) = (watched(10_000.0), Ticks::default());
        with.step(4e6, PERIOD);
        ticks.look(watched(0.0), with, PERIOD);
        assert!((ticks.ns() - 10_000.0).abs() < 1.0, "{ticks:?}");
    }

    #[test]
    fn it_follows_a_machine_that_gets_slower() {
        let mut ticks = Ticks::default();
        (0..50).for_each(|_| ticks.look(watched(0.0), watched(10_000.0), PERIOD));
        let before = ticks.error_ns();
        (0..5).for_each(|_| ticks.look(watched(0.0), watched(40_000.0), PERIOD));
        assert!((20_000.0..35_000.0).contains(&ticks.ns()), "{ticks:?}");
        assert!(ticks.error_ns() > 2.0 * before, "{ticks:?}");
        (0..50).for_each(|_| ticks.look(watched(0.0), watched(40_000.0), PERIOD));
        assert!((ticks.ns() - 40_000.0).abs() < 100.0, "{ticks:?}");
    }

    #[test]
    fn looks_that_differ_leave_it_open() {
        let mut ticks = Ticks::default();
        for at in 0..40 {
            ticks.look(
                watched(0.0),
                watched(if at % 2 == 0 { 10_000.0 } else { 20_000.0 }),
                PERIOD,
            );
        }
        // ± 5,000 each; weights of 0.15 that fade are worth some twelve looks.
        assert!((ticks.ns() - 15_000.0).abs() < 1_500.0, "{ticks:?}");
        let of_looks = (ticks.error_ns().powi(2) - (MODEL * ticks.ns()).powi(2)).sqrt();
        assert!((1_200.0..1_800.0).contains(&of_looks), "{of_looks}");
        assert_eq!(Ticks::default().ns(), 0.0);
    }
}
