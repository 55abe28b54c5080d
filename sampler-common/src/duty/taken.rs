//! What was in windows, taken to all that the program has done: by its clock, or by what counts its work ([`super::Tally`]).

use super::groups::{Group, Groups, TALLIES, TRAFFIC};
use super::tally::{MET, SERVED};
use super::{Bend, Drag, Look};
use crate::estimate::{Cluster, Clusters, Correction};

/// All of a process's progress, at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// As many times that of its strata.
    pub factor: f64,
    /// Ticks that belong to the last stratum and are in none.
    pub tail: f64,
    /// What its clock shows.
    pub clock: f64,
    /// What its tallies show by now, where that can be seen.
    pub looks: [Option<Look>; TALLIES],
}

impl Progress {
    /// No more than its strata.
    pub fn of_strata() -> Progress {
        Progress { factor: 1.0, tail: 0.0, clock: 0.0, looks: [None; TALLIES] }
    }
}

/// By what groups stand for all.
pub(super) enum Taken {
    /// Their strata, of which all progress is so many times; ticks that belong to the last beside.
    Clock { factor: f64, tail: f64 },
    /// By the tally of this number: so much was counted, with its relative standard error, in so many ticks; and as many times what it is known of is all that windows stand for.
    Tally { at: usize, counted: f64, error: f64, ticks: f64, unknown: f64 },
}

impl Taken {
    pub(super) fn by_clock(all: &Progress) -> Taken {
        Taken::Clock { factor: all.factor, tail: all.tail }
    }

    /// By what a tally has counted, and the error of that; `None` where nothing is known of windows.
    pub(super) fn by_tally(
        groups: &Groups,
        at: usize,
        (counted, error): (f64, f64),
        all: &Progress,
    ) -> Option<Taken> {
        let (mut known, mut length) = (0.0, 0.0);
        for group in groups.iter().filter(|group| group.windows > 0) {
            known += group.flows[at].length;
            length += group.length;
        }
        let unknown = length / known;
        let ticks = all.factor * (groups.length() + all.tail);
        (known > 0.0).then_some(Taken::Tally { at, counted, error, ticks, unknown })
    }

    /// What the sums of each group are to be multiplied by where traps add so much, but for its own [`Bend`].
    fn factor(&self, groups: &Groups, ns: [f64; 2]) -> f64 {
        match self {
            Taken::Clock { factor, .. } => *factor,
            Taken::Tally { at, counted, unknown, .. } => {
                counted / (unknown * inside(groups, *at, ns))
            }
        }
    }

    /// What of all progress each group stands for, ticks.
    fn lengths(&self, groups: &Groups, ns: [f64; 2]) -> Vec<f64> {
        match *self {
            Taken::Clock { factor, tail } => {
                let mut lengths: Vec<f64> = groups.iter().map(|of| of.length).collect();
                if let Some(last) = lengths.last_mut() {
                    *last = (*last + tail).max(0.0);
                }
                lengths.into_iter().map(|of| of * factor).collect()
            }
            Taken::Tally { at, ticks, .. } => {
                let all = inside(groups, at, ns);
                groups.iter().map(|of| ticks * of.flows[at].inside.value(ns) / all).collect()
            }
        }
    }

    /// The groups as clusters, and by what bytes and objects of each were multiplied.
    pub(super) fn made(&self, groups: &Groups, drag: &Drag) -> (Clusters, Vec<[f64; 2]>) {
        let of_all = self.factor(groups, drag.ns);
        let of_drag = |bend: Bend| of_all * bend.factor(drag.ns);
        let factors: Vec<[f64; 2]> = groups.iter().map(|of| of.bend.map(of_drag)).collect();
        let totals = groups.iter().zip(&factors).map(|(group, factors)| {
            let [bytes, objects] = sums(group);
            [bytes * factors[0], objects * factors[1]]
        });
        let lengths = self.lengths(groups, drag.ns);
        let clusters: Vec<Cluster> = lengths
            .into_iter()
            .zip(totals)
            .map(|(length, total)| Cluster { length, total })
            .collect();
        let [of_bytes, of_objects] = [0, 1].map(|of| {
            drag.errors_of(|ns| {
                let one = |group: &Group| sums(group)[of] * group.bend[of].factor(ns);
                self.factor(groups, ns) * groups.iter().map(one).sum::<f64>()
            })
        });
        let errors = [0, 1].map(|side| of_bytes[side].max(of_objects[side]));
        let windows = groups.windows();
        let mut made = Clusters { groups: clusters, windows, errors, correction: None };
        let mut told = [0.0; 2];
        if let Taken::Tally { at, error: of_all, .. } = self {
            let (counted, unlike) = unlike(groups, *at, made.of_windows());
            told[usize::from(*at != TRAFFIC)] = counted;
            let others = SERVED.hypot(MET * unlike.sqrt()).hypot(*of_all);
            made.errors = errors.map(|error| error.hypot(others));
        }
        let ([allocating_ns, freeing_ns], of_ns) = (drag.ns, drag.errors());
        made.correction = Some(Correction {
            allocating_ns,
            allocating_error_ns: of_ns[0],
            freeing_ns,
            freeing_error_ns: of_ns[1],
            of_drag: made.errors[1],
            of_drag_below: made.errors[0],
            of_clock: 0.0,
            marks: groups.marks().map(|marks| marks.calls()).sum::<f64>() as u64,
            traffic_bytes: told[0] as u64,
            tallied: told[1] as u64,
            tally: match self {
                Taken::Tally { at, .. } => *at as u32,
                Taken::Clock { .. } => TRAFFIC as u32,
            },
        });
        (made, factors)
    }
}

/// What a tally has counted in windows, each by its share of its stratum.
fn inside(groups: &Groups, at: usize, ns: [f64; 2]) -> f64 {
    groups.iter().map(|of| of.flows[at].inside.value(ns)).sum()
}

/// What a tally has counted in windows; and what these differ in, as a relative variance of one, if it is so much of the mean of all. That a slow counter is met now and then is chance,
/// and not what phases do, but for what chance may hide.
fn unlike(groups: &Groups, at: usize, of_windows: f64) -> (f64, f64) {
    let flows = groups.iter().map(|of| &of.flows[at]);
    let (known, counted) = flows
        .fold((0, 0.0), |(known, counted), of| (known + of.windows, counted + of.counted));
    let chance = f64::from(known) / counted.max(1.0);
    let seen = of_windows * f64::from(groups.windows());
    (counted, (seen - chance).max(0.0) + (2.0 / counted.max(1.0)).min(1.0))
}

fn sums(group: &Group) -> [f64; 2] {
    [&group.bytes, &group.objects].map(|of| of.iter().sum())
}
