//! Programs and the machines that they run on.

use sampler_common::cost::{Dense, Measured};
use sampler_common::duty::{TALLIES, TRAFFIC, Usual};

/// Part of the allocations that is sampled, and as many traps more as a sample adds to the program's own code.
pub(crate) const SAMPLED: f64 = 0.02;
pub(crate) const OF_SAMPLE: f64 = 10.0;

/// What a program does: its allocations in a nanosecond of its own time, each followed by a free.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Length of a period, nanoseconds of its own time.
    pub(crate) period: f64,
    /// Part of it that is busy.
    pub(crate) busy: f64,
    /// Nanoseconds for each allocation, when busy and when not.
    pub(crate) each: [f64; 2],
}

impl Program {
    /// Its own time until it is busy or is not any more.
    pub(crate) fn until_change(&self, at: f64) -> f64 {
        let place = (at / self.period).fract();
        let next = if place < self.busy { self.busy } else { 1.0 };
        // Behind it, however numbers are rounded.
        (next - place) * self.period + 1.0
    }

    pub(crate) fn rate(&self, at: f64) -> f64 {
        let is_busy = (at / self.period).fract() < self.busy;
        1.0 / self.each[usize::from(!is_busy)]
    }
}

/// Where it runs: what a trap adds to its own code in a function that allocates and in one that frees, and to the code that the daemon measures it by; and with how
/// much time for each trap they add all that, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) drag: [f64; 2],
    pub(crate) typical: f64,
    pub(crate) enough: f64,
    /// With which power of less time they add less.
    pub(crate) power: f64,
    pub(crate) host: Host,
}

/// What profiling costs there, and how much of it there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    /// As `--max-overhead` has it.
    pub(crate) budget: &'static str,
    /// A tick, a trap, and attaching and detaching, nanoseconds of CPU time.
    pub(crate) tick_ns: f64,
    pub(crate) trap_ns: f64,
    pub(crate) links_ns: f64,
    /// Windows of a run.
    pub(crate) windows: usize,
}

/// Windows by the hundred.
const FAST: Host =
    Host { budget: "20%", tick_ns: 2_000.0, trap_ns: 600.0, links_ns: 500_000.0, windows: 200 };
/// Two minutes, of a loop, at 1 % where everything is dear.
const DEAR: Host =
    Host { budget: "1%", tick_ns: 21_000.0, trap_ns: 1_400.0, links_ns: 3e6, windows: 25 };

/// As the two that were surveyed, where typical code loses so much that programs are taken to lose as much as they do: as a mean, not as the most likely.
pub(crate) const LIGHT: Machine =
    Machine { drag: [29.0, 18.0], typical: 20.0, enough: 96.0, power: 1.5, host: FAST };
pub(crate) const HEAVY: Machine =
    Machine { drag: [66.0, 41.0], typical: 46.0, enough: 218.0, power: 0.7, host: FAST };

/// As the second when its host is at half its speed, where a loop of malloc and free of 34 ns loses 42 to a trap, and 20 to a second one.
pub(crate) const SLOW: Machine =
    Machine { drag: [143.0, 40.0], typical: 110.0, enough: 472.0, power: 0.65, host: DEAR };

impl Machine {
    pub(crate) fn usual(self) -> Usual {
        let measured = |ns| Measured { ns, variance: 0.0 };
        // What is calibrated on: a loop of malloc and free, without samples.
        let own = 20.0;
        let added = self.settled(self.drag[0], self.enough, own);
        Usual::where_typical_code_loses(measured(self.typical))
            .where_loops_lose(&Dense { own: measured(own), added: measured(added) })
    }

    /// What an allocation's traps add where there are `gap` ns of the program's own between allocations: all of it, but in loops that have little to lose
    /// as much less as the time for each, what they add included, is less than what is enough, to a power.
    pub(crate) fn lost(self, frees: bool, gap: f64) -> f64 {
        let of_samples = SAMPLED * OF_SAMPLE * self.drag[0];
        let drag = self.drag[0] + of_samples + if frees { self.drag[1] } else { 0.0 };
        self.settled(drag, self.enough * (1.0 + of_samples / self.drag[0]), gap)
    }

    /// What traps add that could add `drag` with `enough` time for each.
    fn settled(self, drag: f64, enough: f64, gap: f64) -> f64 {
        let part = |lost: f64| ((gap + lost) / enough).min(1.0);
        // Each step is nearer to where it stays than the one before it.
        let added = |lost: f64| drag * part(lost).powf(self.power);
        if gap + drag > enough { drag } else { (0..40).fold(0.0, |lost, _| added(lost)) }
    }
}

/// A function of the program that is called more rarely, and is its marker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Marker {
    None,
    /// Called once for so many allocations.
    Follows(f64),
    /// Called once in so many nanoseconds of the program's own time, whatever it does.
    Steady(f64),
    /// A request is read and answered once for so many allocations: nothing is probed for that.
    Requests(f64),
    /// The same, where bytes allocated do not follow requests.
    Unlike(f64),
    /// The same, but where the program is not busy once for a third fewer.
    Uneven(f64),
    /// The same once in so many nanoseconds of the program's own time.
    Beats(f64),
    /// A word of its memory counts once for so many allocations.
    Counts(f64),
    /// The same three times at once.
    Rounds(f64),
    /// As many words as there may be, each with a place and rate of its own.
    Several(f64),
    /// One counts in so many nanoseconds of its own time, whatever it does.
    Turns(f64),
    /// One is a clock: it counts in so many nanoseconds, also those that traps take.
    Time(f64),
}

impl Marker {
    /// Whether functions are probed for it.
    pub(crate) fn is_probed(self) -> bool {
        matches!(self, Marker::Follows(_) | Marker::Steady(_))
    }

    /// What it counts at once.
    pub(crate) fn step(self) -> f64 {
        match self {
            Marker::Requests(_) | Marker::Unlike(_) | Marker::Uneven(_) | Marker::Beats(_) => {
                REQUEST
            }
            Marker::Rounds(_) => 3.0,
            _ => 1.0,
        }
    }

    /// Which tally it is, otherwise.
    pub(crate) fn tally(self) -> usize {
        let is_word = matches!(
            self,
            Marker::Counts(_)
                | Marker::Rounds(_)
                | Marker::Several(_)
                | Marker::Turns(_)
                | Marker::Time(_)
        );
        TRAFFIC + usize::from(is_word)
    }

    /// It and those beside it.
    pub(crate) fn tallies(self) -> std::ops::Range<usize> {
        let words = if matches!(self, Marker::Several(_)) { TALLIES - TRAFFIC - 1 } else { 1 };
        self.tally()..self.tally() + words
    }
}

/// Bytes of a request and its answer.
pub(crate) const REQUEST: f64 = 250.0;

/// What a trap of the marker takes of the program's own time, nanoseconds, by what one among many adds; half as much again as it is taken to.
pub(crate) const LONE: f64 = 10.0;
