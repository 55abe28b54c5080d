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
use crate::target::spots::Spot;
use sampler_common::duty::{Fit, Marked, Verdict, Window};
use sampler_common::wire::{Cookie, MARKERS};

/// Time between two calls: at least as many times what a lone trap adds, so that it adds a part of 8 % at most, and at most nanoseconds.
const LEAST_GAPS: f64 = 12.0;
const MOST_GAP_NS: f64 = 250_000.0;
/// As many times the calls of the least gap end the count before a window, and there are no markers.
const MOST_CALLS: f64 = 2.0;
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
        let is_enough = !self.used.is_empty() && self.gap_ns <= ENOUGH_NS;
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
        for (number, spot) in (self.used.len()..).zip(tried) {
            let own_ns = alone_ns / calls_of(number);
            let together = 1.0 / (1.0 / gap_ns + 1.0 / own_ns);
            if own_ns <= MOST_GAP_NS && together >= least_ns {
                gap_ns = together;
                self.probed.push(spot);
            }
        }
        if self.probed.len() > self.used.len() {
            // Another sum.
            self.used.resize(self.probed.len(), Fit::default());
            (self.fit, self.gap_ns) = (Fit::default(), gap_ns);
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
        let Some((alone, alone_ns)) = self.alone.take() else { return (None, self.fit.verdict()) };
        self.used.iter_mut().zip(calls).for_each(|(of, calls)| of.add(*calls as f64, allocations));
        let inside = calls[..self.used.len()].iter().sum::<u64>() as f64;
        self.fit.add(inside, allocations);
        if self.fit.is_bad() {
            tracing::debug!(fit = self.fit.variance(), of = ?self.used, "no markers");
            let any_is_bad = self.used.iter().any(Fit::is_bad);
            self.forget(|of| any_is_bad && !of.is_bad());
            return (None, Verdict::Differs);
        }
        (Some(Marked { inside, alone, alone_ns }), self.fit.verdict())
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
        let point = |(number, spot): (u8, &Spot)| (spot.offset, Cookie::marker(slot, number).0);
        let numbered: Vec<(u8, &Spot)> = (0..).zip(&probed).collect();
        for of_file in numbered.chunk_by(|(_, a), (_, b)| a.is_in_same_file(b)) {
            let marking = of_file.iter().copied().map(point).collect();
            let points = Points { marking, ..Points::default() };
            match self.kernel.attach(&of_file[0].1.file, Some(pid), &points) {
                Ok(links) => {
                    self.attached.entry(slot).and_modify(|of| of.links.extend(links));
                }
                // They are called never, then.
                Err(error) => tracing::debug!(pid, "{error:#}"),
            }
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
        let (calls, is_cut) = duties.marks(slot);
        let unit = duties.timers().unit(true);
        let alone_ns = match is_cut {
            false => cycle.window.marking as f64 * unit,
            // To half a tick.
            true => (cycle.window.marking.saturating_sub(duties.left(slot)) as f64 + 0.5) * unit,
        };
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
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// So many functions wait to be tried.
    fn waiting(count: u64) -> Markers {
        let spots = (0..count).rev().map(Spot::in_this_program);
        Markers { waiting: spots.collect(), ..Markers::default() }
    }

    fn calls(of: &[u64]) -> [u64; MARKERS] {
        std::array::from_fn(|number| of.get(number).copied().unwrap_or(0))
    }

    fn offsets(markers: &Markers) -> Vec<u64> {
        markers.probed().iter().map(|spot| spot.offset).collect()
    }

    /// Eight are tried for 3 ms in which these calls are counted; one each 5 µs may be.
    fn tried(of: &[u64]) -> Markers {
        let mut markers = waiting(12);
        assert!(markers.choose() && offsets(&markers) == (0..8).collect::<Vec<_>>());
        markers.counted(&calls(of), false, 3.0 * MS, 5_000.0);
        assert!(markers.alone.is_none(), "a trial tells nothing");
        markers
    }

    #[test]
    fn what_is_called_neither_too_often_nor_too_rarely_is_one() {
        // Each 3 µs, never, each 10 µs, each 300 µs, each 20 µs, and what is too much together.
        let mut markers = tried(&[1000, 0, 300, 10, 150, 250]);
        assert_eq!(offsets(&markers), [2, 4]);
        // Enough of them: nothing else is tried.
        assert!(markers.choose() && offsets(&markers) == [2, 4]);
        markers.counted(&calls(&[600, 300]), false, 6.0 * MS, 5_000.0);
        let told = markers.told(&calls(&[150, 70]), 20_000.0);
        let expected = Marked { inside: 220.0, alone: 900.0, alone_ns: 6.0 * MS };
        assert_eq!(told, (Some(expected), Verdict::Open));
        assert_eq!(markers.told(&calls(&[150, 70]), 20_000.0), (None, Verdict::Open), "once");
    }

    #[test]
    fn where_none_is_the_next_ones_are_tried() {
        let mut markers = tried(&[2000, 0, 0, 1, 0, 0, 0, 2000]);
        assert!(markers.choose() && offsets(&markers) == [8, 9, 10, 11]);
        markers.counted(&calls(&[]), false, 3.0 * MS, 5_000.0);
        assert!(!markers.choose(), "all have been tried");
    }

    #[test]
    fn a_few_are_added_to() {
        let mut markers = tried(&[0, 20]);
        assert!(markers.choose() && offsets(&markers) == [1, 8, 9, 10, 11]);
        let window = Window { marking: 200, ..WINDOW };
        assert_eq!(markers.ticks(&window), TRIAL);
        markers.counted(&calls(&[20, 0, 100]), false, 3.0 * MS, 5_000.0);
        assert_eq!((offsets(&markers), markers.ticks(&window)), (vec![1, 9], 200));
    }

    #[test]
    fn markers_that_are_called_too_often_in_some_phase_are_none() {
        let mut markers = tried(&[0, 300]);
        markers.counted(&calls(&[2000]), true, 1.0 * MS, 5_000.0);
        assert_eq!(markers.told(&calls(&[2000]), 20_000.0), (None, Verdict::Differs));
        assert!(markers.probed().is_empty());
    }

    #[test]
    fn what_does_not_follow_allocations_is_given_up() {
        let mut markers = tried(&[0, 300, 0, 200]);
        let mut last = (None, Verdict::Open);
        for at in 0..40 {
            markers.counted(&calls(&[200, 200]), false, 6.0 * MS, 5_000.0);
            last = markers.told(&calls(&[100, if at % 4 == 0 { 800 } else { 0 }]), 20_000.0);
            if last.1 == Verdict::Differs {
                break;
            }
        }
        let expected = ((None, Verdict::Differs), vec![1]);
        assert_eq!((last, offsets(&markers)), expected, "the other remains");
    }

    const WINDOW: Window = Window {
        length: 1000,
        offset: 0,
        marking: 0,
        ticks: 40,
        fine: true,
        frees: false,
        interval_bytes: 4096,
        length_ns: 5.0 * MS,
        share: 0.01,
    };
}
