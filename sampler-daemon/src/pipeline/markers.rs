//! The markers of a process that has a budget ([`sampler_common::duty::Marks`]): functions of it whose calls are counted before a window and in it.
//!
//! Nobody knows how often a function is called before it is probed. So those that may be markers are tried, some at a time, for a moment before windows and with a
//! bound on their calls. Those that are called rarely enough to cost nothing and often enough to be met are counted from then on, all as one: where a program
//! changes, one of them is called in the one phase and another in the next. What is not needed is not tried: markers cost windows, and where these differ by more than what traps add is
//! unknown by, there are none ([`Groups::want_marks`](sampler_common::duty::Groups::want_marks)).

use super::clock::thread_ns;
use super::worker::Worker;
use crate::bpf::Points;
use crate::store::ProcessId;
use crate::target::hazard;
use crate::target::spots::{self, Spot};
use sampler_common::duty::{Fit, Marked, Verdict, Window};
use sampler_common::wire::{Cookie, MARKERS};

/// Time between two calls: at least as many times what a lone trap adds, so that it adds a part of 8 % at most, and at most nanoseconds.
const LEAST_GAPS: f64 = 12.0;
const MOST_GAP_NS: f64 = 250_000.0;
/// As many times the calls of the least gap end the count before a window, from when they are probed on, and there are no markers.
const MOST_CALLS: f64 = 3.0;
/// Fewer calls in a trial say nothing.
const LEAST_CALLS: f64 = 5.0;
/// Time between two calls of markers that are enough of them, nanoseconds.
const ENOUGH_NS: f64 = 50_000.0;
/// Ticks of the fine clock in which functions are tried.
const TRIAL: u64 = 24;

/// The search for markers, and the markers.
#[derive(Default)]
pub(super) struct Markers {
    /// What is to be tried, the last first.
    waiting: Vec<Spot>,
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
    is_wanted: bool,
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

    /// Chooses what is tried next; whether anything is to be probed.
    fn choose(&mut self) -> bool {
        let is_known = self.fit.verdict() == Verdict::Follows;
        let is_enough = !self.used.is_empty() && (is_known || self.gap_ns <= ENOUGH_NS);
        while !is_enough && self.probed.len() < MARKERS {
            let Some(spot) = self.waiting.pop() else { break };
            self.probed.push(spot);
        }
        !self.probed.is_empty()
    }

    /// So many calls came before a window in so much of the clock's time, which ended early if there were too many; no marker is called oftener than each `least_ns`.
    fn counted(&mut self, calls: &[u64; MARKERS], is_cut: bool, alone_ns: f64, least_ns: f64) {
        let tried = self.probed.split_off(self.used.len());
        let calls_of = |number: usize| calls[number] as f64;
        let all: f64 = (0..self.used.len()).map(calls_of).sum();
        self.alone = (!is_cut && tried.is_empty()).then_some((all, alone_ns));
        if tried.is_empty() {
            self.is_cut = is_cut;
            return;
        }
        let mut gap_ns = if self.used.is_empty() { f64::INFINITY } else { alone_ns / all };
        let tried = (self.used.len()..).zip(tried);
        if is_cut {
            // Of the others it is not known yet: they are tried again, after the rest.
            let most = tried.clone().map(|(number, _)| calls[number]).max().unwrap_or(0);
            let is_hot =
                |number: usize| calls[number] == most || alone_ns / calls_of(number) < least_ns;
            let others = tried.filter(|(number, _)| !is_hot(*number)).map(|(_, spot)| spot);
            self.waiting.splice(..0, others);
            return;
        }
        for (number, spot) in tried {
            let own_ns = alone_ns / calls_of(number);
            let together = 1.0 / (1.0 / gap_ns + 1.0 / own_ns);
            let is_met = own_ns <= MOST_GAP_NS && calls_of(number) >= LEAST_CALLS;
            if is_met && together >= least_ns {
                gap_ns = together;
                self.probed.push(spot);
            }
        }
        if self.probed.len() > self.used.len() {
            self.used.resize(self.probed.len(), Fit::default());
            (self.fit, self.gap_ns, self.are_new) = (Fit::default(), gap_ns, true);
        }
    }

    /// They cannot be probed: neither those that are tried, nor, if none is, the markers.
    fn fail(&mut self) {
        match self.probed.len() > self.used.len() {
            true => self.probed.truncate(self.used.len()),
            false => self.forget(|_| false),
        }
    }

    /// Those remain of the markers that are so.
    fn forget(&mut self, is_one: impl Fn(&Fit) -> bool) {
        let mut used = self.used.iter();
        self.probed.retain(|_| used.next().is_some_and(&is_one));
        self.used.retain(is_one);
        (self.fit, self.gap_ns) = (Fit::default(), f64::INFINITY);
    }

    /// What the window has told in which they were called so often, and what is known of them by now. If their sum does not follow allocations, those remain
    /// that do by themselves.
    fn told(&mut self, calls: &[u64; MARKERS], allocations: f64) -> (Option<Marked>, Verdict) {
        if std::mem::take(&mut self.is_cut) {
            // In a phase in which they are called so often; others without would be all that counts.
            self.forget(|_| false);
            return (None, Verdict::Differs);
        }
        if std::mem::take(&mut self.are_new) {
            return (None, Verdict::Differs);
        }
        let Some((alone, alone_ns)) = self.alone.take() else { return (None, self.fit.verdict()) };
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
        (Some(Marked { inside, own, alone, alone_ns }), self.fit.verdict())
    }
}

impl Worker {
    /// Whether calls of functions are to be counted before the next window of a process: its markers', or those of some that may be.
    pub(super) fn choose_markers(&mut self, slot: u32) -> bool {
        let Worker { cycles, ingest, .. } = self;
        let (Some(cycle), Some(source)) = (cycles.get_mut(&slot), ingest.sources.get(&slot)) else {
            return false;
        };
        let (id, markers) = (source.process, &mut cycle.markers);
        if !markers.is_wanted {
            return false;
        }
        let windows = ingest.clustered.groups(id).map_or(0, |of| of.windows());
        let is_out = markers.waiting.is_empty() && markers.used.is_empty();
        if is_out && windows >= markers.list_at {
            markers.list_at = 3 * windows;
            let allocators = source.allocators.clone();
            let pid = source.pid;
            let listed = ingest.candidates(id, &allocators, hazard::has_shadow_stack(pid));
            markers.waiting = spots::mapped_in(pid, listed);
            markers.waiting.reverse();
            tracing::debug!(slot, candidates = markers.waiting.len(), "markers");
        }
        markers.choose()
    }

    /// Time between two calls of markers of a process at least, nanoseconds.
    fn least_gap_ns(&self) -> f64 {
        LEAST_GAPS * self.ingest.clustered.usual().lone_ns().0
    }

    /// Before the window of a process its markers are probed alone; false: they cannot be, or there are none.
    pub(super) fn open_marking(&mut self, slot: u32) -> bool {
        let (Some(cycle), Some(source)) = (self.cycles.get(&slot), self.ingest.sources.get(&slot))
        else {
            return false;
        };
        let (ticks, pid) = (cycle.window.marking, source.pid);
        let probed = cycle.markers.probed().to_vec();
        if ticks == 0 || probed.is_empty() {
            return false;
        }
        self.set_spots(slot);
        let least_ns = self.least_gap_ns();
        let Some(duties) = &mut self.kernel.duties else { return false };
        let alone_ns = ticks as f64 * duties.timers().unit(true);
        duties.lead(slot, 1, true);
        duties.begin_marks(slot, (MOST_CALLS * alone_ns / least_ns).max(64.0) as i64);
        let before = thread_ns();
        let point = |(number, spot): (u8, &Spot)| (spot.offset, Cookie::marker(slot, number).0);
        let numbered: Vec<(u8, &Spot)> = (0..).zip(&probed).collect();
        let mut is_attached = true;
        for of_file in numbered.chunk_by(|(_, a), (_, b)| a.is_in_same_file(b)) {
            let marking = of_file.iter().copied().map(point).collect();
            let points = Points { marking, ..Points::default() };
            match self.kernel.attach(&of_file[0].1.file, Some(pid), &points) {
                Ok(links) => {
                    self.attached.entry(slot).and_modify(|of| of.links.extend(links));
                }
                Err(error) => {
                    if self.attached.get(&slot).is_some_and(|of| of.is_running()) {
                        tracing::warn!(pid, "no calls are counted before a window: {error:#}");
                    }
                    is_attached = false;
                }
            }
        }
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return false;
        };
        cycle.attach_ns += thread_ns().saturating_sub(before);
        if is_attached {
            cycle.markers.is_marking = true;
            duties.ready(slot, ticks, true);
        } else {
            cycle.markers.fail();
            self.detach_after_window(slot);
            self.await_without_markers(slot);
        }
        true
    }

    /// The count before the window of a process is over: the window is next, or where the count has ended too early, waits for its time.
    pub(super) fn end_marking(&mut self, slot: u32) {
        let least_ns = self.least_gap_ns();
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return;
        };
        let (calls, is_cut) = duties.marks(slot);
        let late = duties.late(slot);
        cycle.window = cycle.window.marking_late_by(late);
        if is_cut {
            cycle.window.marking = cycle.window.marking.saturating_sub(duties.left(slot));
        }
        let timers = duties.timers();
        // What was cut is known to half a tick.
        let half = if is_cut { 0.5 * timers.unit(true) } else { 0.0 };
        let alone_ns = cycle.window.marking_ns(timers) + half;
        let markers = &mut cycle.markers;
        markers.is_marking = false;
        let names = |of: &[Spot]| of.iter().map(|of| of.name.clone()).collect::<Vec<_>>();
        tracing::debug!(slot, ?calls, is_cut, alone_ns, late, probed = ?names(&markers.probed), "markers");
        markers.counted(&calls, is_cut, alone_ns, least_ns);
        // What was only tried is not counted in the window.
        let is_counted = markers.alone.is_some();
        if !is_cut {
            duties.come(slot);
        }
        if !is_counted {
            self.detach_after_window(slot);
        }
        match is_cut {
            true => self.await_without_markers(slot),
            false => self.open_window(slot),
        }
    }

    /// What calls of its markers tell of the window of a process that has ended, in which so much was allocated.
    pub(super) fn marked(&mut self, slot: u32, allocations: f64) -> Option<Marked> {
        let (Some(cycle), Some(duties), Some(source)) =
            (self.cycles.get_mut(&slot), &self.kernel.duties, self.ingest.sources.get(&slot))
        else {
            return None;
        };
        let groups = self.ingest.clustered.groups_mut(source.process);
        // For good: were it to depend on what the program does just now, so would how its windows are met.
        cycle.markers.is_wanted = cycle.markers.is_wanted || groups.want_marks();
        let (calls, _) = duties.marks(slot);
        let (marked, verdict) = cycle.markers.told(&calls, allocations);
        groups.judge_marks(verdict);
        marked
    }

    /// How the markers of a process are called where they are spoken of.
    pub(super) fn marker_names(&self, id: ProcessId) -> Option<String> {
        let markers = &self.cycles.get(&self.slot_of(id)?)?.markers;
        let names: Vec<&str> = markers.probed[..markers.used.len().min(markers.probed.len())]
            .iter()
            .map(|of| of.name.as_str())
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

#[cfg(test)]
mod tests;
