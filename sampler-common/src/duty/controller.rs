//! Where the next window goes, how long it is, and how much is sampled in it.
//!
//! # Derivation
//!
//! A window of c ticks costs w = a + c·h + m·s: a to attach and detach, and for hits before the window and behind it, h for the hits of a tick, s for each of
//! m samples. A stratum of L ticks earns L·τ·b, τ being the CPU time that goes with a tick and b the budget. So
//!
//! ```text
//! L = (w + spent − earned) / (b·τ)
//! ```
//!
//! where the two other terms correct what earlier windows have cost more, or less, than was expected of them.
//!
//! c: of a program that a window slows down by the factor 1 + r only one tick in 1 + r falls into its own code, by chance: what is counted per tick
//! varies by t/c of its square, t = r/(1 + r). With a variance of σ_b² between windows besides, (σ_b² + t/c) times the cost is least at
//! c = √(a/h · t/σ_b²). It is at least as long as attaching is worth, c = 2·a/h, and where a tally ([`super::Tally`]) counts slowly, in the time that traps leave to the program, up to three times that; one that begins and ends at [steps](super::Steps) is as long as two of them, by what windows have waited. What traps add to the program's own time
//! is in h, as far as it is known.
//! What is expected of the next window are ratios of sums over the last ones, so that one that met nothing, or little of it, is no reason to
//! expect that of all; and no window is more than twice as long as the one before it, nor its interval four times smaller: a program
//! that was idle may begin to work at any time.
//! m: for a variance of σ_b²/n between windows and σ_w²/(n·m) within them, at a cost of n·(w₀ + m·s), the least error is at
//! m = √(w₀/s · σ_w²/σ_b²) (Cochran, chapter 10.6). σ_w² is that of a stack with a tenth of all bytes, (1 − p)/p = 9.

use super::pace::MOST_OF_TIME;
use super::recent::{Between, Recent};
use super::steps::LEAST as LEAST_STEPS;
use super::{Budget, Groups, Ledger, Steps, Timers, Window, WindowCost};

/// Longest window, nanoseconds of progress.
const LONGEST_NS: f64 = 200e6;
/// Time that hits take in a window, compared with the program's own, from which on the fine clock is worth its cost.
const FINE_FROM: f64 = 0.05;
/// Ticks of the clock of progress that a window has at least.
const LEAST_COARSE: f64 = 2.0;
/// As many times what attaching takes the hits of a window take at least. Were windows alike however long they are, 1 would be best; but most programs change within milliseconds: a
/// longer window has more of what they do, so that windows differ less, and is corrected by what traps have added to all of that together. One that has met a dense phase only is corrected for most
/// of its time, by what is not known that well.
const LONG: f64 = 2.0;
/// Where a tally counts more rarely than that in what traps leave of such a window, windows are longer, up to so many times what attaching takes: what is compared with it varies by hardly less than one count.
const COUNTS: f64 = 2.0;
const LONGER: f64 = 6.0;
/// One that begins and ends at [steps](super::Steps) is so many of them long. Of regular ones it has a whole number anyway, but a round may have several that are none.
const ROUNDS: f64 = 2.0;
/// Share of windows in which frees are probed too, for each time that hits slow a program down: the more they do the more it matters what they
/// slow its own code by.
const WITH_FREES: f64 = 0.05;
/// Least and most of that share.
const WITH_FREES_ENDS: (f64, f64) = (0.1, 0.4);
/// From so many times on it falls again, by the square: in loops that hardly do more than allocate what frees add is known better than windows could tell, and leaves those in which
/// they are probed more open than the others, which cost half as much.
const DENSE: f64 = 12.0;
/// As many times a window's ticks a marker is probed alone before it, and the least that this is of.
const MARKING: f64 = 3.0;
const LEAST_MARKED: f64 = 6.0;
/// What that takes of a window's time before it is known, beside the clock's ticks: its calls, nearly as often as they may come.
const FIRST_MARKING: f64 = 0.3;
/// Variance of a stack's share within a window, for each sample.
const WITHIN: f64 = 9.0;
/// Samples in a window: fewer tell nothing, and more come in no time.
const SAMPLES: (f64, f64) = (8.0, 1000.0);
/// In as many strata what windows have cost more than was expected of them is earned.
const REPAID: f64 = 4.0;
/// How much the last window weighs in what is expected of what the next costs beside its hits.
const WEIGHT: f64 = 0.3;
/// How many times longer a window may be than the one before it, and smaller its interval.
const GROWTH: (f64, f64) = (2.0, 4.0);
/// Mean bytes between samples in the first window of a process, of which nothing is known.
const FIRST_INTERVAL: f64 = 65_536.0;
/// Longest first window, nanoseconds of progress: a program that does nothing but allocate comes forward forty times more slowly in it, and that of one of
/// 5 ms took a tenth of what 1 % of two minutes is.
const FIRST_LONGEST_NS: f64 = 1e6;
/// Nanoseconds of attaching and detaching.
const FIRST_FIXED_NS: f64 = 5_000_000.0;
/// Of a sample, in the process and in the daemon.
const SAMPLE_NS: f64 = 12_000.0;

/// What a window is to be, wherever it goes.
struct Shape {
    fine: bool,
    ticks: f64,
    /// What it costs, nanoseconds.
    cost: f64,
    samples: f64,
}

/// Plans windows from what earlier ones have cost.
#[derive(Clone, Debug)]
pub struct Controller {
    timers: Timers,
    /// What of the budget is left for windows.
    budget: f64,
    /// Of the last windows, fading.
    recent: Recent,
    fixed_ns: f64,
    /// Of hits while a step is waited for.
    waiting_ns: f64,
    /// The word whose steps were waited for last.
    waits_for: Option<usize>,
    /// How long the next one is to be, and no longer than which, nanoseconds.
    planned_ns: f64,
    longest_ns: f64,
    interval: f64,
    between: Between,
    /// Whether a marker is counted with the next window.
    is_marked: bool,
    /// Nanoseconds of progress for a count of its best tally; infinite without one.
    count_ns: f64,
    windows: u32,
}

impl Controller {
    /// Of a process that nothing is known of.
    pub fn new(budget: Budget, timers: Timers) -> Controller {
        Controller {
            timers,
            budget: budget.share() - timers.share(),
            recent: Recent::default(),
            fixed_ns: FIRST_FIXED_NS,
            waiting_ns: 0.0,
            waits_for: None,
            planned_ns: FIRST_LONGEST_NS,
            longest_ns: FIRST_LONGEST_NS,
            interval: FIRST_INTERVAL,
            between: Between::default(),
            is_marked: false,
            count_ns: f64::INFINITY,
            windows: 0,
        }
    }

    /// The process's best tally counts so often in a tick; `None`: it has none.
    pub fn tallied(&mut self, in_tick: Option<f64>) {
        let count_ns = in_tick.map(|of| self.timers.unit(false) / of);
        self.count_ns = count_ns.unwrap_or(f64::INFINITY);
    }

    /// It is known better what a tick takes.
    pub fn retime(&mut self, timers: Timers) {
        self.timers = timers;
    }

    /// A window has ended.
    pub fn ended(&mut self, cost: &WindowCost) {
        let weight = if self.windows == 0 { 1.0 } else { WEIGHT };
        let follow = |of: &mut f64, new: f64| *of += weight * (new - *of);
        let ticks = cost.ticks.max(1) as f64;
        let hits = (cost.probes_ns - cost.samples as f64 * SAMPLE_NS / 4.0).max(0.0);
        follow(&mut self.fixed_ns, cost.fixed_ns);
        let length_ns = cost.length_ns.max(1.0);
        let mean = self.recent.bytes();
        if self.windows > 0 && mean > 0.0 && cost.ticks > 0 {
            self.between.add(cost.bytes / length_ns / mean - 1.0, self.chance() / ticks);
        }
        if let Some(marking_ns) = cost.marking_ns {
            self.recent.add_marking(marking_ns, length_ns);
        }
        let waited = cost.waited.unwrap_or_default();
        follow(&mut self.waiting_ns, waited.hits_ns);
        self.recent.add_wait(cost.waited.as_ref());
        self.recent.add_drag(cost.drag_ns, length_ns + waited.before_ns);
        self.recent.add(length_ns, hits, cost.bytes);
        // Not with the plan: of one that never was nothing is known.
        self.longest_ns = GROWTH.0 * self.planned_ns;
        self.windows += 1;
    }

    /// The next window, before which calls of a marker are counted if there `is_marked` one; `random` gives uniform numbers in [0, 1). What it depends on is past, so that
    /// where it falls does not depend on what is there.
    pub fn next(
        &mut self,
        ledger: &Ledger,
        is_marked: bool,
        mut random: impl FnMut() -> f64,
    ) -> Window {
        let each = ledger.own_ns / ledger.clock.max(1) as f64;
        // A tick is at least its own time; of a program that is mostly in the kernel it goes with more.
        let unit = self.timers.unit(false);
        let earned = self.budget * each.max(unit);
        self.is_marked = is_marked;
        let Shape { fine, ticks, cost, samples } = self.shape();
        let debt = ledger.spent_ns - self.budget * ledger.own_ns;
        // What was saved is not spent at once, nor what was spent saved: strata as unlike as windows' costs are would be worth fewer of one length.
        let wanted = (cost + debt / REPAID).max(cost / 2.0) / earned;
        let length_ns = ticks * self.timers.unit(fine);
        let is_marked = is_marked && fine;
        let marking = if is_marked { MARKING * ticks.max(LEAST_MARKED) } else { 0.0 };
        let own = (length_ns / unit).ceil() as u64;
        let length = (wanted.min(1e15).ceil() as u64).max(own + 1);
        let offset = ((length - own) as f64 * random()) as u64;
        self.planned_ns = length_ns;
        if self.windows > 0 {
            let wanted = self.recent.bytes() * length_ns / samples;
            self.interval = wanted.max(self.interval / GROWTH.1).clamp(1.0, 4_294_967_296.0);
        }
        let offset = offset.min(length - own);
        let (least, most) = WITH_FREES_ENDS;
        let slowdown = self.recent.slowdown();
        let dense = (slowdown / DENSE).max(1.0).powi(2);
        let frees = fine && random() < (WITH_FREES * slowdown / dense).clamp(least, most);
        let share = length_ns / (length as f64 * unit);
        Window {
            length,
            offset,
            marking: marking as u64,
            ticks: ticks as u64,
            fine,
            frees,
            interval_bytes: self.interval as u64,
            length_ns,
            share,
        }
    }

    /// The word at whose [steps](super::Steps) a planned window begins and ends, by the windows before; `None`: it does at ticks.
    pub fn steps_by(&mut self, window: &Window, groups: &Groups) -> Option<usize> {
        // Calls of markers are counted from the tick on that was drawn.
        if window.marking > 0 || !Steps::are_possible(window, self.timers) {
            return None;
        }
        let by = groups.steps_by()?;
        let length_ns = window.length_ns;
        let meets = match self.recent.round_ns() {
            Some(round_ns) => length_ns >= LEAST_STEPS * round_ns,
            None => groups.meets(by, length_ns / self.timers.unit(false)),
        };
        if meets && self.waits_for != Some(by) {
            self.recent.forget_waits();
            self.waits_for = Some(by);
        }
        meets.then_some(by)
    }

    /// The share of ticks that do not fall into the program's own code, in a window.
    fn chance(&self) -> f64 {
        let slowdown = self.recent.slowdown();
        slowdown / (1.0 + slowdown)
    }

    /// What counting calls of a marker takes of a window's time.
    fn of_marking(&self) -> f64 {
        let first = MARKING * self.timers.share_of_fine() + FIRST_MARKING;
        self.recent.marking().unwrap_or(first)
    }

    fn shape(&self) -> Shape {
        let slowdown = self.recent.slowdown();
        // Where the other clock has no tick yet in a window that is as long as it may be, only the fine one can tell how long it was.
        let fine = slowdown > FINE_FROM || self.longest_ns < LEAST_COARSE * self.timers.unit(false);
        let unit = self.timers.unit(fine);
        let timer = if fine { (1.0 + slowdown) * self.timers.tick_ns } else { 0.0 };
        let of_tick = ((slowdown + self.recent.drag()) * unit + timer).max(1.0);
        let between = self.between.variance();
        let worth = (self.fixed_ns / of_tick * self.chance() / between).sqrt();
        let attaching = self.fixed_ns / of_tick;
        // Of a window's time a part is what traps add to the program's own code, in which nothing is counted.
        let own = unit * (1.0 - self.recent.drag().min(MOST_OF_TIME));
        let has_any = self.count_ns.is_finite();
        let counting = match self.recent.round_ns().filter(|_| has_any) {
            Some(round_ns) => ROUNDS * round_ns / unit,
            None if has_any => COUNTS * self.count_ns / own,
            None => 0.0,
        };
        let long = counting.clamp(LONG * attaching, LONGER * attaching);
        let ticks = worth.max(long).ceil();
        let most = LONGEST_NS.min(self.longest_ns) / unit;
        let ticks = ticks.min(most).max(1.0).floor();
        // What a marker costs is no reason for shorter windows: what it tells is the better the longer they are.
        let marking = if self.is_marked && fine { self.of_marking() } else { 0.0 };
        let fixed = self.fixed_ns + self.waiting_ns;
        let before_samples = fixed + ticks * (of_tick + marking * unit);
        let between = between + self.chance() / ticks;
        let samples = (before_samples / SAMPLE_NS * WITHIN / between).sqrt();
        let samples = samples.clamp(SAMPLES.0, SAMPLES.1);
        Shape { fine, ticks, samples, cost: before_samples + samples * SAMPLE_NS }
    }

    /// CPU time of its own that the process needs for one more window, nanoseconds: about.
    pub fn period_ns(&self) -> f64 {
        let Shape { fine, ticks, cost, .. } = self.shape();
        (cost / self.budget).max(ticks * self.timers.unit(fine))
    }
}

#[cfg(test)]
mod tests;
