//! The markers of a process that has a budget ([`sampler_common::duty::Marks`]): functions of it whose calls are counted before a window and in it.
//!
//! Nobody knows how often a function is called before it is probed. So those that may be markers are tried, some at a time, for a moment before windows and with a
//! bound on their calls. Those that are called rarely enough to cost nothing and often enough to be met are counted from then on, all as one: where a program
//! changes, one of them is called in the one phase and another in the next. What is not needed is not tried: a program that traps hardly slow down has no marker.

use super::clock::thread_ns;
use super::worker::Worker;
use crate::bpf::Points;
use crate::store::ProcessId;
use crate::target::spots::Spot;
use sampler_common::duty::{Fit, Marked, Window};
use sampler_common::wire::{Cookie, MARKERS};

/// Windows before functions are listed: their samples have to have met what the program does.
const FIRST_LIST: u32 = 6;
/// Time between two calls: at least as many times what a lone trap adds, so that it adds a part of 5 % at most, and at most nanoseconds.
const LEAST_GAPS: f64 = 20.0;
const MOST_GAP_NS: f64 = 250_000.0;
/// As many times the calls of the least gap end the count before a window; so often, and there are no markers.
const MOST_CALLS: f64 = 3.0;
const MOST_CUTS: u32 = 3;
/// Markers that are enough.
const ENOUGH: usize = 4;
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
    /// How often they were called too often.
    cuts: u32,
    /// Whether the gate is the markers', and not the window's.
    pub(super) is_marking: bool,
    /// Calls before the window that is open, or will be, and the clock's time.
    alone: Option<(f64, f64)>,
    /// Whether traps slow the program down by enough.
    is_wanted: bool,
}

impl Markers {
    /// Where they are, and what is tried.
    pub(super) fn probed(&self) -> &[Spot] {
        &self.probed
    }

    /// The window is given up.
    pub(super) fn skip(&mut self) {
        self.is_marking = false;
        self.alone = None;
    }

    /// How long they are probed before a window that would give them so many ticks.
    pub(super) fn ticks(&self, window: &Window) -> u64 {
        if self.used.is_empty() { window.marking.min(TRIAL) } else { window.marking }
    }

    /// Chooses what is tried next; whether anything is to be probed.
    fn choose(&mut self) -> bool {
        while self.probed.len() < MARKERS && self.used.len() < ENOUGH {
            let Some(spot) = self.waiting.pop() else { break };
            self.probed.push(spot);
        }
        !self.probed.is_empty()
    }

    /// So many calls came before a window in so much of the clock's time, or in some of it if there were too many; no marker is called oftener than each `least_ns`.
    fn counted(&mut self, calls: &[u64; MARKERS], is_cut: bool, alone_ns: f64, least_ns: f64) {
        let tried = self.probed.split_off(self.used.len());
        let calls_of = |number: usize| calls[number] as f64;
        let all: f64 = (0..self.used.len()).map(calls_of).sum();
        let mut gap_ns = if self.used.is_empty() { f64::INFINITY } else { alone_ns / all };
        self.alone = (!is_cut && tried.is_empty()).then_some((all, alone_ns));
        if tried.is_empty() {
            self.cuts += u32::from(is_cut);
            if self.cuts >= MOST_CUTS {
                self.probed.clear();
                self.used.clear();
            }
            return;
        }
        let most = least_ns / MOST_CALLS;
        for (number, spot) in (self.used.len()..).zip(tried) {
            let own_ns = alone_ns / calls_of(number);
            if is_cut {
                // What took no more than its part of the calls is tried again.
                if own_ns > MARKERS as f64 * most {
                    self.waiting.push(spot);
                }
                continue;
            }
            let together = 1.0 / (1.0 / gap_ns + 1.0 / own_ns);
            if own_ns <= MOST_GAP_NS && together >= least_ns {
                gap_ns = together;
                self.probed.push(spot);
            }
        }
        if self.probed.len() > self.used.len() {
            // Another sum.
            self.used.resize(self.probed.len(), Fit::default());
            self.fit = Fit::default();
            self.cuts = 0;
        }
    }

    /// What the window has told in which they were called so often. If their sum does not follow allocations, those remain that do by themselves; whether what windows before have told is worth nothing.
    fn told(&mut self, calls: &[u64; MARKERS], allocations: f64) -> (Option<Marked>, bool) {
        let Some((alone, alone_ns)) = self.alone.take() else { return (None, false) };
        self.used.iter_mut().zip(calls).for_each(|(of, calls)| of.add(*calls as f64, allocations));
        let inside = calls[..self.used.len()].iter().sum::<u64>() as f64;
        self.fit.add(inside, allocations);
        if self.fit.is_bad() {
            let mut used = std::mem::take(&mut self.used);
            let mut each = used.iter();
            self.probed.retain(|_| each.next().is_some_and(|of| !of.is_bad()));
            used.retain(|of| !of.is_bad());
            tracing::debug!(fit = self.fit.variance(), left = used.len(), "no markers");
            (self.used, self.fit) = (used, Fit::default());
            return (None, true);
        }
        (Some(Marked { inside, alone, alone_ns }), false)
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
        if std::env::var("NOM").is_ok() {
            return false;
        }
        if !markers.is_wanted {
            return false;
        }
        let windows = ingest.clustered.groups(id).map_or(0, |of| of.windows());
        let is_out = markers.waiting.is_empty() && markers.used.is_empty();
        if is_out && windows >= markers.list_at.max(FIRST_LIST) {
            markers.list_at = 3 * windows;
            let allocators = source.allocators.clone();
            markers.waiting = ingest.candidates(id, &allocators);
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
        let before = thread_ns();
        for (number, spot) in (0..).zip(&probed) {
            let point = (spot.offset, Cookie::marker(slot, number).0);
            let points = Points { marking: vec![point], ..Points::default() };
            match self.kernel.attach(&spot.file, Some(pid), &points) {
                Ok(links) => self.attached.entry(slot).and_modify(|of| of.links.extend(links)),
                // It is called never, then.
                Err(error) => {
                    tracing::debug!(pid, "{error:#}");
                    continue;
                }
            };
        }
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return false;
        };
        cycle.attach_ns += thread_ns().saturating_sub(before);
        cycle.markers.is_marking = true;
        duties.begin_marks(slot, (MOST_CALLS * alone_ns / least_ns).max(64.0) as i64);
        duties.ready(slot, ticks, true);
        true
    }

    /// The count before the window of a process is over: the window is next.
    pub(super) fn end_marking(&mut self, slot: u32) {
        let least_ns = self.least_gap_ns();
        let (Some(cycle), Some(duties)) = (self.cycles.get_mut(&slot), &self.kernel.duties) else {
            return;
        };
        let ((calls, is_cut), alone_ns) =
            (duties.marks(slot), cycle.window.marking_ns(duties.timers()));
        let markers = &mut cycle.markers;
        markers.is_marking = false;
        let names = |of: &[Spot]| of.iter().map(|of| of.name.clone()).collect::<Vec<_>>();
        tracing::debug!(slot, ?calls, is_cut, alone_ns, probed = ?names(&markers.probed), "markers");
        markers.counted(&calls, is_cut, alone_ns, least_ns);
        duties.come(slot);
        // What was only tried is not counted in the window.
        if markers.alone.is_none() {
            self.detach_after_window(slot);
        }
    }

    /// What calls of its markers tell of the window of a process that has ended, in which so much was allocated, and traps made it that many times as long.
    pub(super) fn marked(&mut self, slot: u32, allocations: f64, slower: f64) -> Option<Marked> {
        let (Some(cycle), Some(duties), Some(source)) =
            (self.cycles.get_mut(&slot), &self.kernel.duties, self.ingest.sources.get(&slot))
        else {
            return None;
        };
        // For good: were it to depend on what the program does just now, so would how its windows are met.
        cycle.markers.is_wanted |= Marked::is_worth(slower);
        let (calls, _) = duties.marks(slot);
        let (marked, is_none) = cycle.markers.told(&calls, allocations);
        if is_none {
            self.ingest.clustered.groups_mut(source.process).forget_marks();
        }
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
