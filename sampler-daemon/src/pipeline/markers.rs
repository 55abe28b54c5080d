//! The markers of a process that has a budget ([`sampler_common::duty::Marks`]): functions of it whose calls are counted before a window and in it.
//!
//! Nobody knows how often a function is called before it is probed. So those that may be markers are tried, some at a time, for a moment before windows and with a
//! bound on their calls. Those that are called rarely enough to cost nothing and often enough to be met are counted from then on, all as one: where a program
//! changes, one of them is called in the one phase and another in the next. What is not needed is not tried: markers cost windows, and where these differ by more than what traps add is
//! unknown by, there are none ([`Groups::want_marks`](sampler_common::duty::Groups::want_marks)).

use crate::target::spots::Spot;
use sampler_common::duty::{Fit, Marked, Verdict, Window};
use sampler_common::wire::MARKERS;

/// Time between two calls at most, nanoseconds.
const MOST_GAP_NS: f64 = 250_000.0;
/// Fewer calls in a trial say nothing.
const LEAST_CALLS: f64 = 5.0;
/// Time between two calls of markers that are enough of them, nanoseconds.
const ENOUGH_NS: f64 = 50_000.0;
/// As many times longer than it must be time between two calls seems in a trial that others have cut short.
const CUT: f64 = 2.0;
/// Ticks of the fine clock in which functions are tried.
const TRIAL: u64 = 24;

/// The search for markers, and the markers.
#[derive(Default)]
pub(super) struct Markers {
    /// What is to be tried, the last first.
    waiting: Vec<Spot>,
    /// What was none, and is not tried again: it is called all the time, or not as allocations come.
    failed: Vec<Spot>,
    /// Windows after which functions are listed again.
    list_at: u32,
    /// What is probed before the next window: the markers, and behind them what is tried.
    probed: Vec<Spot>,
    /// Of each of the markers, how its calls follow allocations.
    used: Vec<Fit>,
    /// The same of all together.
    fit: Fit,
    /// Time between two calls of any, when they were tried; infinite without one.
    gap_ns: f64,
    /// Whether the gate is the markers', and not the window's.
    pub(super) is_marking: bool,
    /// Calls before the window that is open, or will be, and the clock's time.
    alone: Option<(f64, f64)>,
    /// Whether they were called too often for that.
    is_cut: bool,
    /// Whether they have become others, of which nothing is known.
    are_new: bool,
    /// Whether what traps add is what is least known of the program.
    pub(super) is_wanted: bool,
}

impl Markers {
    /// Where they are, and what is tried.
    pub(super) fn probed(&self) -> &[Spot] {
        &self.probed
    }

    /// The window is given up.
    pub(super) fn skip(&mut self) {
        (self.is_marking, self.is_cut, self.alone) = (false, false, None);
    }

    /// How long they are probed before a window that would give them so many ticks.
    pub(super) fn ticks(&self, window: &Window) -> u64 {
        let is_trial = self.probed.len() > self.used.len();
        if is_trial { window.marking.min(TRIAL) } else { window.marking }
    }

    /// After so many windows none is known, nor is there any to be tried: whether functions are to be listed again, as will be done.
    pub(super) fn is_out(&mut self, windows: u32) -> bool {
        let is_out = self.waiting.is_empty() && self.used.is_empty() && windows >= self.list_at;
        if is_out {
            self.list_at = 3 * windows;
        }
        is_out
    }

    /// These may be markers, the likeliest first.
    pub(super) fn list(&mut self, mut spots: Vec<Spot>) {
        spots.retain(|spot| !self.failed.iter().any(|of| of.is_same(spot)));
        spots.reverse();
        self.waiting = spots;
    }

    /// Chooses what is tried next; whether anything is to be probed.
    pub(super) fn choose(&mut self) -> bool {
        let is_known = self.fit.of_calls() == Verdict::Follows;
        let is_enough = !self.used.is_empty() && (is_known || self.gap_ns <= ENOUGH_NS);
        while !is_enough && self.probed.len() < MARKERS {
            let Some(spot) = self.waiting.pop() else { break };
            self.probed.push(spot);
        }
        !self.probed.is_empty()
    }

    /// So many calls came before a window in so much of the clock's time, which ended early if there were too many; no marker is called oftener than each `least_ns`.
    /// Whether they are to be counted in the window as well.
    pub(super) fn counted(
        &mut self,
        calls: &[u64; MARKERS],
        is_cut: bool,
        alone_ns: f64,
        least_ns: f64,
    ) -> bool {
        let tried = self.probed.split_off(self.used.len());
        let calls_of = |number: usize| calls[number] as f64;
        let all: f64 = (0..self.used.len()).map(calls_of).sum();
        self.alone = (!is_cut && tried.is_empty()).then_some((all, alone_ns));
        if tried.is_empty() {
            self.is_cut = is_cut;
            return !is_cut;
        }
        let mut gap_ns = if self.used.is_empty() { f64::INFINITY } else { alone_ns / all };
        // The traps of others have added to the clock, and it is not known when it was cut to less than a tick.
        let room = if is_cut { CUT } else { 1.0 };
        let most = (self.used.len()..MARKERS).map(|number| calls[number]).max().unwrap_or(0);
        let mut again = Vec::new();
        for (number, spot) in (self.used.len()..).zip(tried) {
            let own_ns = alone_ns / calls_of(number);
            let together = 1.0 / (1.0 / gap_ns + 1.0 / own_ns);
            let is_met = own_ns <= MOST_GAP_NS && calls_of(number) >= LEAST_CALLS;
            let is_hot = own_ns < least_ns || is_cut && calls[number] == most;
            if is_met && !is_hot && together >= room * least_ns {
                gap_ns = together;
                self.probed.push(spot);
            } else if is_hot {
                self.failed.push(spot);
            } else if is_cut {
                // Of it nothing is known yet.
                again.push(spot);
            }
        }
        // Next, without what was called all the time: they are the likeliest that are left.
        self.waiting.extend(again.into_iter().rev());
        if self.probed.len() > self.used.len() {
            self.used.resize(self.probed.len(), Fit::default());
            (self.fit, self.gap_ns, self.are_new) = (Fit::default(), gap_ns, true);
        }
        false
    }

    /// Whether calls of markers were counted before the window, and not of what was only tried.
    pub(super) fn have_counted(&self) -> bool {
        self.alone.is_some()
    }

    /// Relative standard error of what they tell, beside chance.
    pub(super) fn model(&self) -> f64 {
        self.fit.model()
    }

    /// Those whose calls tell something, where there are any.
    pub(super) fn names(&self) -> Option<String> {
        let used = self.probed.iter().take(self.used.len());
        let names: Vec<&str> = used.map(|of| of.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// They cannot be probed: neither those that are tried, nor, if none is, the markers.
    pub(super) fn fail(&mut self) {
        match self.probed.len() > self.used.len() {
            true => self.probed.truncate(self.used.len()),
            false => self.forget(|_| false),
        }
    }

    /// Those remain of the markers that are so.
    fn forget(&mut self, is_one: impl Fn(&Fit) -> bool) {
        let mut used = self.used.iter();
        let (kept, failed): (Vec<Spot>, Vec<Spot>) =
            self.probed.drain(..).partition(|_| used.next().is_some_and(&is_one));
        self.probed = kept;
        self.failed.extend(failed);
        self.used.retain(is_one);
        (self.fit, self.gap_ns) = (Fit::default(), f64::INFINITY);
    }

    /// What the window has told in which they were called so often, and what is known of them by now. If their sum does not follow allocations, those remain
    /// that do by themselves.
    pub(super) fn told(
        &mut self,
        calls: &[u64; MARKERS],
        allocations: f64,
    ) -> (Option<Marked>, Verdict) {
        if std::mem::take(&mut self.is_cut) {
            // In a phase in which they are called so often; others without would be all that counts.
            self.forget(|_| false);
            return (None, Verdict::Differs);
        }
        if std::mem::take(&mut self.are_new) {
            return (None, Verdict::Differs);
        }
        let Some((alone, alone_ns)) = self.alone.take() else { return (None, self.fit.of_calls()) };
        self.used.iter_mut().zip(calls).for_each(|(of, calls)| of.add(*calls as f64, allocations));
        let each = self.probed.iter().zip(calls).take(self.used.len());
        let own = each.clone().filter(|(spot, _)| !spot.is_allocating);
        let [inside, own] =
            [each.map(|(_, of)| of).sum::<u64>(), own.map(|(_, of)| of).sum()].map(|of| of as f64);
        self.fit.add(inside, allocations);
        if self.fit.is_bad() {
            tracing::debug!(fit = self.fit.variance(), of = ?self.used, "no markers");
            let any_is_bad = self.used.iter().any(Fit::is_bad);
            self.forget(|of| any_is_bad && !of.is_bad());
            return (None, Verdict::Differs);
        }
        (Some(Marked { inside, own, alone, alone_ns }), self.fit.of_calls())
    }
}

#[cfg(test)]
mod tests;
