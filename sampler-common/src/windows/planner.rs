//! The place, the length and the sampling interval of the next window.
//!
//! # Derivation
//!
//! A window of c ticks costs w = a + c·h + m·s nanoseconds of CPU time. a is the time to attach and
//! detach, h that of the hits in a tick, s that of each of m samples. A stratum of L ticks may cost
//! L·τ·b, where τ is the CPU time of a tick and b the budget. So
//!
//! ```text
//! L = (w + (spent − earned)/4) / (b·τ)
//! ```
//!
//! Here `spent` is the cost of earlier windows, and `earned` what they were allowed to cost. The
//! second term makes up for the difference over four strata.
//!
//! The window has c = 2·a/h ticks, so that its hits cost twice as much as attaching. A longer
//! window costs more for the same variance between windows. If a window slows a program down by the
//! factor 1 + r, a tick falls into only one of 1 + r periods, at random. The interval contains the
//! variance that this adds between windows.
//!
//! h and the bytes of a tick are ratios of sums over recent windows. So one window without an
//! allocation does not decide about the next. A window is at most twice as long as the one before,
//! and its sampling interval at least a quarter of the one before: an idle program may begin to
//! work at any time.

use super::Budget;

/// Shortest period of the timer, nanoseconds. It is no multiple of usual timer periods of programs
/// and of the kernel.
const MIN_PERIOD_NS: f64 = 2_003_000.0;
/// Share of the budget that the timer's ticks may cost.
const TIMER_SHARE: f64 = 0.25;
/// Longest window, nanoseconds of progress.
const MAX_WINDOW_NS: f64 = 200e6;
/// Cost of a window's hits, as a multiple of the cost of attaching.
const HITS_BY_ATTACHING: f64 = 2.0;
/// Largest cost of a window's samples, as a share of its other cost.
const SAMPLES_SHARE: f64 = 0.25;
/// CPU time of a sample in the process and in the daemon, nanoseconds.
const SAMPLE_NS: f64 = 12_000.0;
/// Fewest and most samples of a window.
const SAMPLES_PER_WINDOW: (f64, f64) = (8.0, 1000.0);
/// Number of strata over which an unexpected cost is repaid.
const REPAID_IN: f64 = 4.0;
/// Weight that the sums over recent windows keep when a window is added.
const RECENT_WEIGHT: f64 = 0.8;
/// Largest growth of a window over the one before, and of the sampling rate.
const MAX_GROWTH_FACTORS: (f64, f64) = (2.0, 4.0);
/// CPU time of attaching and detaching before it is measured, nanoseconds.
const FIRST_FIXED_NS: f64 = 5e6;
/// CPU time of the hits of a tick before it is measured, as a multiple of the time of a tick.
const FIRST_SLOWDOWN: f64 = 1.0;
/// Mean bytes between samples in the first window.
const FIRST_INTERVAL: f64 = 65_536.0;

/// The timer that measures progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Period, nanoseconds.
    pub period_ns: u64,
}

impl Clock {
    /// Largest CPU time of a tick, nanoseconds: 1 µs on bare metal, 8 to 20 µs in a virtual machine
    /// whose timer the host has to set.
    pub const TICK_NS: f64 = 20_000.0;

    /// The timer for a budget.
    pub fn new(budget: Budget) -> Clock {
        let period = Clock::TICK_NS / (TIMER_SHARE * budget.share());
        Clock { period_ns: period.max(MIN_PERIOD_NS) as u64 }
    }

    /// The program's own time per tick, nanoseconds.
    pub fn own_ns(&self) -> f64 {
        self.period_ns as f64
    }

    /// Largest share of CPU time that the ticks cost.
    pub fn share(&self) -> f64 {
        Clock::TICK_NS / self.period_ns as f64
    }
}

/// Progress and cost of a process since it is profiled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Ticks of the process's clock.
    pub ticks: u64,
    /// CPU time of the process without the cost of profiling, nanoseconds.
    pub own_ns: f64,
    /// The cost of the process's windows, nanoseconds.
    pub spent_ns: f64,
}

/// The cost of a window, and what was allocated in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowCost {
    /// Ticks of the window.
    pub ticks: u64,
    /// CPU time of the hits and samples, nanoseconds.
    pub hits_ns: f64,
    /// CPU time of attaching and detaching, nanoseconds.
    pub fixed_ns: f64,
    /// Samples taken.
    pub samples: u64,
    /// Bytes allocated.
    pub bytes: f64,
}

/// A planned window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Ticks of its stratum: L.
    pub length: u64,
    /// Ticks of the stratum before the window.
    pub offset: u64,
    /// Ticks of the window: c.
    pub ticks: u64,
    /// Mean bytes between samples.
    pub interval_bytes: u64,
}

impl Window {
    /// Probability that an allocation of the stratum falls into the window: κ.
    pub fn kappa(&self) -> f64 {
        self.ticks as f64 / self.length as f64
    }
}

/// Sums over recent windows; older windows weigh less.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    ticks: f64,
    hits_ns: f64,
    bytes: f64,
}

/// Plans the windows of a process from the cost of its earlier windows.
#[derive(Clone, Debug)]
pub struct Planner {
    clock: Clock,
    /// The budget without the cost of the clock.
    budget: f64,
    recent: Recent,
    fixed_ns: f64,
    windows: u32,
    max_ticks: f64,
    interval: f64,
}

impl Planner {
    /// A planner for a process without any window yet.
    pub fn new(budget: Budget, clock: Clock) -> Planner {
        Planner {
            clock,
            budget: budget.share() - clock.share(),
            recent: Recent::default(),
            fixed_ns: FIRST_FIXED_NS,
            windows: 0,
            max_ticks: 1.0,
            interval: FIRST_INTERVAL,
        }
    }

    /// Records the cost of an ended window.
    pub fn ended(&mut self, cost: &WindowCost) {
        let ticks = cost.ticks.max(1) as f64;
        let hits_ns = (cost.hits_ns - cost.samples as f64 * SAMPLE_NS / 4.0).max(0.0);
        let keep = |old: f64, new: f64| RECENT_WEIGHT * old + new;
        self.recent = Recent {
            ticks: keep(self.recent.ticks, ticks),
            hits_ns: keep(self.recent.hits_ns, hits_ns),
            bytes: keep(self.recent.bytes, cost.bytes),
        };
        let weight = if self.windows == 0 { 1.0 } else { 1.0 - RECENT_WEIGHT };
        self.fixed_ns += weight * (cost.fixed_ns - self.fixed_ns);
        self.max_ticks = MAX_GROWTH_FACTORS.0 * ticks;
        self.windows += 1;
    }

    /// The next window; `random` is uniform in [0, 1). The window depends on the past only, so its
    /// place does not depend on the allocations there.
    pub fn next(&mut self, ledger: &Ledger, random: f64) -> Window {
        let (ticks, cost, samples) = self.shape();
        let tick_ns = (ledger.own_ns / ledger.ticks.max(1) as f64).max(self.clock.own_ns());
        let debt = ledger.spent_ns - self.budget * ledger.own_ns;
        // Strata of very different lengths would be worth fewer strata of equal length.
        let wanted = (cost + debt / REPAID_IN).max(cost / 2.0) / (self.budget * tick_ns);
        let length = (wanted.min(1e15).ceil() as u64).max(ticks as u64 + 1);
        let room = length - ticks as u64;
        let offset = ((room as f64 + 1.0) * random) as u64;
        if self.windows > 0 {
            let wanted = self.recent.bytes / self.recent.ticks * ticks / samples;
            self.interval =
                wanted.max(self.interval / MAX_GROWTH_FACTORS.1).clamp(1.0, 4_294_967_296.0);
        }
        Window {
            length,
            offset: offset.min(room),
            ticks: ticks as u64,
            interval_bytes: self.interval as u64,
        }
    }

    /// Ticks, cost in nanoseconds, and samples of the next window.
    fn shape(&self) -> (f64, f64, f64) {
        let hits_ns = match self.windows {
            0 => FIRST_SLOWDOWN * self.clock.own_ns(),
            _ => (self.recent.hits_ns / self.recent.ticks).max(1.0),
        };
        let most = self.max_ticks.min(MAX_WINDOW_NS / self.clock.own_ns()).max(1.0);
        let ticks = (HITS_BY_ATTACHING * self.fixed_ns / hits_ns).clamp(1.0, most).floor();
        let before_samples = self.fixed_ns + ticks * hits_ns;
        let samples = (SAMPLES_SHARE * before_samples / SAMPLE_NS)
            .clamp(SAMPLES_PER_WINDOW.0, SAMPLES_PER_WINDOW.1);
        (ticks, before_samples + samples * SAMPLE_NS, samples)
    }

    /// Approximate CPU time of its own that the process needs for one more window, nanoseconds.
    pub fn period_ns(&self) -> f64 {
        let (ticks, cost, _) = self.shape();
        (cost / self.budget).max(ticks * self.clock.own_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT_NS: f64 = 600.0;

    fn budget(text: &str) -> Budget {
        Budget::parse(text).unwrap()
    }

    /// A program with a number of allocations per tick and a number of windows: the windows' share
    /// of its own time, and the last window.
    fn run(share: &str, allocations: f64, windows: usize) -> (f64, Window) {
        let clock = Clock::new(budget(share));
        let mut planner = Planner::new(budget(share), clock);
        let mut ledger = Ledger::default();
        let mut window = planner.next(&ledger, 0.5);
        for at in 0..windows {
            let hits_ns = allocations * window.ticks as f64 * HIT_NS;
            ledger.ticks += window.length;
            ledger.own_ns += window.length as f64 * clock.own_ns();
            ledger.spent_ns += hits_ns + 4e6;
            let bytes = allocations * window.ticks as f64 * 100.0;
            let samples = (bytes / window.interval_bytes as f64) as u64;
            let cost = WindowCost { ticks: window.ticks, hits_ns, fixed_ns: 4e6, samples, bytes };
            planner.ended(&cost);
            window = planner.next(&ledger, (at as f64 * 0.618).fract());
            assert!(window.offset + window.ticks <= window.length, "{window:?}");
        }
        (ledger.spent_ns / ledger.own_ns + clock.share(), window)
    }

    #[test]
    fn a_budget_is_kept() {
        for share in ["0.1%", "1%", "20%"] {
            for allocations in [0.0, 100.0, 10_000.0, 200_000.0] {
                let (spent, _) = run(share, allocations, 200);
                let least = budget(share).share();
                assert!(spent < 1.1 * least, "{share} {allocations}: {spent}");
                // The windows of a program that seldom allocates cover nearly all of its time, and
                // cost less than the budget.
                assert!(spent > 0.3 * least || allocations < 1e4, "{share} {allocations}: {spent}");
            }
        }
    }

    #[test]
    fn a_window_is_long_where_a_program_seldom_allocates() {
        let (_, seldom) = run("1%", 100.0, 50);
        let (_, often) = run("1%", 100_000.0, 50);
        assert_eq!(often.ticks, 1);
        assert!(seldom.ticks > 20, "{seldom:?}");
        // Samples cost no more than a quarter of the other cost.
        assert!(often.interval_bytes > 1_000, "{often:?}");
    }

    #[test]
    fn the_clock_costs_a_part_of_the_budget() {
        let clock = Clock::new(budget("1%"));
        assert_eq!((clock.period_ns, clock.share()), (8_000_000, 0.0025));
        assert_eq!(Clock::new(budget("50%")).period_ns, 2_003_000);
    }

    #[test]
    fn windows_are_placed_uniformly_in_a_stratum() {
        let mut planner = Planner::new(budget("1%"), Clock::new(budget("1%")));
        let ledger = Ledger::default();
        let first = planner.next(&ledger, 0.0);
        let last = planner.next(&ledger, 0.999_999_999);
        assert_eq!((first.offset, last.offset), (0, last.length - last.ticks));
        assert!((first.kappa() - first.ticks as f64 / first.length as f64).abs() < 1e-12);
    }
}
