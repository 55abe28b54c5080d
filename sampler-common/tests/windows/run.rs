//! A program under a budget.

use crate::common::SplitMix;
use crate::program::{Host, LONE, Machine, Marker, Program};
use sampler_common::duty::{Lead, Look, Marked, Steps, Timers, Window, WindowCost};
use sampler_common::wire::missed;

/// Class of all blocks, and their bytes.
pub(crate) const CLASS: usize = 5;
pub(crate) const BYTES: f64 = 100.0;
/// Time of the wall's clock that the daemon takes to come, and each of attaching and detaching, nanoseconds.
const COMES_NS: f64 = 300_000.0;
const ATTACH_NS: f64 = 600_000.0;
const DETACH_NS: f64 = 300_000.0;

/// When a window begins.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Begin {
    /// At a tick that was settled before there were probes.
    Settled,
    /// When probes are there: what must not be.
    Attached,
}

/// A program under a budget.
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Program,
    pub(crate) timers: Timers,
    pub(crate) rng: SplitMix,
    /// The program's own time, without what traps add; and user time, with it.
    pub(crate) own: f64,
    pub(crate) user: f64,
    /// Allocations.
    pub(crate) truth: f64,
    pub(crate) machine: Machine,
    /// Of what profiling took.
    pub(crate) spent: f64,
    pub(crate) marker: Marker,
    /// Calls of the marker.
    pub(crate) calls: f64,
    /// Whether it is probed in windows.
    pub(crate) is_marked: bool,
    /// Calls of the marker when the last window began, and when it ended.
    pub(crate) looks: [f64; 2],
    /// Its user time when it exits.
    pub(crate) exit: f64,
}

/// What probes see.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Probes {
    None,
    /// The marker alone.
    Marker,
    Allocating,
    All,
}

/// What came of a window.
pub(crate) struct Seen {
    pub(crate) window: Window,
    pub(crate) allocations: f64,
    pub(crate) cost: WindowCost,
    pub(crate) marked: Option<Marked>,
    pub(crate) steps: Option<Steps>,
    /// For how long there were probes, by the clock.
    pub(crate) lasted_ns: f64,
}

/// What happened in a step.
pub(crate) struct Step {
    pub(crate) allocations: f64,
    pub(crate) hits: f64,
    /// Whether the tick fell into the program's own code.
    pub(crate) ticks: bool,
}

impl Run<'_> {
    /// `ns` of CPU time of the program.
    pub(crate) fn step(&mut self, ns: f64, probes: Probes) -> Step {
        let (user, mut left) = (self.user, ns);
        let mut all = Step { allocations: 0.0, hits: 0.0, ticks: false };
        while left > 0.5 {
            let (allocations, hits, taken) = self.part_of_step(left, probes);
            all.allocations += allocations;
            all.hits += hits;
            left -= taken;
        }
        all.ticks = self.rng.uniform() < (self.user - user) / ns;
        all
    }

    /// As much of that as it does in one phase: allocations, hits, and CPU time.
    fn part_of_step(&mut self, ns: f64, probes: Probes) -> (f64, f64, f64) {
        let rate = self.program.rate(self.own);
        let lost = |frees| self.machine.lost(frees, 1.0 / rate);
        let of_marker = match self.marker {
            Marker::None | Marker::Time(_) => 0.0,
            Marker::Follows(allocations)
            | Marker::Requests(allocations)
            | Marker::Counts(allocations)
            | Marker::Rounds(allocations)
            | Marker::Several(allocations)
            | Marker::Unlike(allocations) => rate / allocations,
            Marker::Uneven(allocations) if rate < 1.0 / self.program.each[0] => {
                1.5 * rate / allocations
            }
            Marker::Uneven(allocations) => rate / allocations,
            Marker::Steady(each) | Marker::Beats(each) | Marker::Turns(each) => 1.0 / each,
        };
        let lone = LONE * self.machine.drag[0] * of_marker / rate;
        let trap_ns = self.machine.host.trap_ns;
        let among = if self.is_marked { lone / LONE } else { 0.0 };
        let (trap, drag) = match probes {
            Probes::None => (0.0, 0.0),
            Probes::Marker => (trap_ns * of_marker / rate, lone),
            Probes::Allocating => (trap_ns, lost(false) + among),
            Probes::All => (2.0 * trap_ns, lost(true) + among),
        };
        let user = 1.0 + rate * drag;
        let each = user + rate * trap;
        let own = (ns / each).min(self.program.until_change(self.own));
        self.own += own;
        self.user += own * user;
        let allocations = own * rate;
        self.truth += allocations;
        self.calls += own * of_marker;
        if let Marker::Time(ns) = self.marker {
            self.calls += own * each / ns;
        }
        self.spent += allocations * trap;
        let hits = if trap > 0.0 { allocations * trap / trap_ns } else { 0.0 };
        (allocations, hits, own * each)
    }

    /// Ticks of the clock of progress.
    pub(crate) fn clock(&self) -> f64 {
        (self.user / self.timers.unit(false)).floor()
    }

    /// What it has read and written so far, or that word has counted.
    pub(crate) fn look(&self, tally: usize) -> Look {
        Look { counted: self.counted(tally, self.calls), ticks: self.clock() as u64 }
    }

    /// The same after so many calls.
    pub(crate) fn counted(&self, tally: usize, calls: f64) -> u64 {
        // The others beside it are a little slower.
        let beside = (tally - self.marker.tally()) as f64;
        let counts = (calls * (1.0 - beside / 8.0) + beside * 0.37).floor();
        if self.marker.is_probed() { 0 } else { (counts * self.marker.step()) as u64 }
    }

    /// Some of the wall's time, in which ticks of the program's own are counted; the hits in it.
    fn pass(&mut self, ns: f64, probes: Probes, passed: &mut u64) -> f64 {
        let unit = self.timers.unit(true);
        let mut hits = 0.0;
        for _ in 0..(ns * (0.5 + self.rng.uniform()) / unit).round() as u64 {
            if self.is_over() {
                break;
            }
            let step = self.step(unit, probes);
            hits += step.hits;
            *passed += u64::from(step.ticks);
        }
        hits
    }

    /// Whether it has exited.
    pub(crate) fn is_over(&self) -> bool {
        self.user >= self.exit
    }

    /// A window, which begins and ends at steps of that tally, if it is one: as it was seen, its allocations, and what it cost. An exit ends it; `None`: before it began.
    pub(crate) fn window(
        &mut self,
        window: Window,
        lead: &mut Lead,
        begin: Begin,
        by: Option<usize>,
    ) -> Option<Seen> {
        let unit = self.timers.unit(window.fine);
        let probes = if window.frees { Probes::All } else { Probes::Allocating };
        let mut passed = 0;
        self.pass(COMES_NS, Probes::None, &mut passed);
        passed = 0;
        let is_marked = window.marking > 0;
        if is_marked {
            self.pass(ATTACH_NS, Probes::Marker, &mut passed);
        }
        let window = window.marking_late_by(passed);
        let before = self.calls.floor();
        self.until(window.marking, true, Probes::Marker);
        let (alone, alone_ns) = (self.calls.floor() - before, window.marking_ns(self.timers));
        self.pass(COMES_NS, Probes::None, &mut passed);
        passed = 0;
        self.is_marked = is_marked;
        let mut outside = self.pass(ATTACH_NS, probes, &mut passed);
        let settled = match begin {
            Begin::Attached => passed + 1,
            // One of the other clock begins with the next.
            Begin::Settled if !window.fine => {
                passed = 0;
                1
            }
            Begin::Settled => {
                let settled = lead.ticks().min(passed + Lead::longest_wait(window.ticks));
                lead.passed(passed);
                settled
            }
        };
        // It begins with a tick: the next one, if it is late.
        loop {
            if self.is_over() {
                return None;
            }
            let step = self.step(unit, probes);
            outside += step.hits;
            passed += u64::from(step.ticks);
            if step.ticks && passed >= settled {
                break;
            }
        }
        let late = passed - settled;
        let left = window.ticks - missed(window.ticks, late);
        let before = self.calls.floor();
        let (seen, hits, steps) = match by {
            Some(by) => self.by_steps(by, left, window.fine, probes, &mut outside),
            None => {
                self.looks[0] = self.calls;
                let (seen, hits) = self.until(left, window.fine, probes);
                self.looks[1] = self.calls;
                (seen, hits, None)
            }
        };
        let inside = self.calls.floor() - before;
        let marked = is_marked.then_some(Marked { inside, own: inside, alone, alone_ns });
        self.is_marked = false;
        outside += self.pass(DETACH_NS, probes, &mut passed);
        let Host { trap_ns, links_ns, .. } = self.machine.host;
        self.spent += links_ns;
        let window = window.late_by(late);
        let (ticks, lasted) = steps.map_or((left, left), |of: Steps| (of.seen, of.lasted));
        let waited = steps.map(|of| of.waited(left, unit, hits * trap_ns));
        let waiting_ns = waited.map_or(0.0, |of| of.hits_ns);
        let cost = WindowCost {
            length_ns: ticks as f64 * unit,
            ticks,
            probes_ns: hits * trap_ns,
            fixed_ns: (links_ns + outside * trap_ns - waiting_ns).max(0.0),
            marking_ns: marked.map(|of| (of.alone + of.inside) * trap_ns),
            drag_ns: 0.0,
            waited,
            bytes: seen * BYTES,
            samples: 0,
        };
        let lasted_ns = lasted as f64 * unit;
        Some(Seen { window, allocations: seen, cost, marked, steps, lasted_ns })
    }

    /// From the first step of a tally to the first behind so many ticks, each if it comes within as many; allocations and hits in between, and how it went.
    fn by_steps(
        &mut self,
        by: usize,
        patience: u64,
        fine: bool,
        probes: Probes,
        outside: &mut f64,
    ) -> (f64, f64, Option<Steps>) {
        let unit = self.timers.unit(fine);
        let patience = patience as i64;
        let (mut left, mut first, mut ends) = (patience, None, 0);
        let (mut seen, mut hits) = (0.0, 0.0);
        let mut from = self.counted(by, self.calls);
        self.looks = [-1.0; 2];
        while left > -patience && !self.is_over() {
            let step = self.step(unit, probes);
            let was_left = left > 0;
            left -= i64::from(step.ticks);
            let is_step = self.counted(by, self.calls) != from;
            if first.is_none() {
                *outside += step.hits;
                if is_step || left <= 0 {
                    ends += u64::from(is_step);
                    (first, self.looks[0]) = (Some(left), self.calls);
                    from = self.counted(by, self.calls);
                }
                continue;
            }
            (seen, hits) = (seen + step.allocations, hits + step.hits);
            if was_left && left <= 0 {
                from = self.counted(by, self.calls);
            } else if left <= 0 && is_step {
                ends += 1;
                break;
            }
        }
        self.looks[1] = self.calls;
        let seen_ticks = first.map_or(0, |first: i64| (first - left) as u64);
        (seen, hits, Some(Steps { lasted: (patience - left) as u64, seen: seen_ticks, ends }))
    }

    /// Until so many ticks have come; the allocations and hits by then.
    fn until(&mut self, mut left: u64, fine: bool, probes: Probes) -> (f64, f64) {
        let unit = self.timers.unit(fine);
        let (mut seen, mut hits) = (0.0, 0.0);
        while left > 0 && !self.is_over() {
            let step = self.step(unit, probes);
            seen += step.allocations;
            hits += step.hits;
            left -= u64::from(step.ticks);
        }
        (seen, hits)
    }
}
