//! How the cost of profiling grows with the number of threads, processes, live samples and distinct
//! stacks, and with the depth of stacks.
//!
//! A point is one size of one of these. Its program belongs to the test suite (`benches/growth.c`,
//! `benches/pairs.c`). In each repetition every point is measured without samplerd and with
//! samplerd, in random order. Costs are CPU time added to a pair of malloc and free, relative to
//! the first point of their kind.

use crate::attached::Samples;
use crate::clock;
use crate::kind::Kind;
use crate::layout::Layout;
use crate::program::Program;
use crate::repetitions::Plan;
use crate::scratch::Scratch;
use crate::toolbox::nobody_probes;
use crate::workload::Protocol;
use anyhow::{Context, Result};
use fastrand::Rng;
use sampler_tests::progress::Progress;
use sampler_tests::spread::Spread;
use sampler_tests::{Daemon, daemon};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Pairs of malloc and free that every thread makes in a round.
const PAIRS: u32 = 10_000;

/// What one repetition measured at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// CPU seconds of a pair without samplerd.
    pub(crate) alone_s: f64,
    /// CPU seconds of a pair with samplerd.
    pub(crate) with_s: f64,
    /// CPU seconds of samplerd for each pair.
    pub(crate) own_s: f64,
    /// Samples for each pair.
    pub(crate) samples: f64,
    /// Samples whose record found no room, for each pair.
    pub(crate) lost: f64,
}

/// A point with its repetitions.
pub(crate) struct Point {
    /// What grows.
    pub(crate) kind: Kind,
    /// Size of the point: how many.
    pub(crate) at: u32,
    /// The repetitions; `None` for one that failed.
    pub(crate) repetitions: Vec<Option<Growth>>,
}

impl Point {
    /// CPU time added to a pair, divided by that at `first`, repetition by repetition.
    pub(crate) fn added(&self, first: &Point) -> Spread {
        let added = |of: &Growth| of.with_s - of.alone_s;
        let pairs = self.repetitions.iter().zip(&first.repetitions);
        let ratio = |(this, first): (&Option<Growth>, &Option<Growth>)| {
            Some(added(this.as_ref()?) / added(first.as_ref()?))
        };
        Spread::of(pairs.filter_map(ratio))
    }

    /// Time with samplerd divided by the time without samplerd.
    pub(crate) fn slowdown(&self) -> Spread {
        Spread::of(self.repetitions.iter().flatten().map(|of| of.with_s / of.alone_s))
    }

    /// CPU time of samplerd for each sample, divided by that at `first`. `None` for a kind whose
    /// cost is not that of samples.
    pub(crate) fn own_per_sample(&self, first: &Point) -> Option<f64> {
        let each = |point: &Point| {
            let all = || point.repetitions.iter().flatten();
            let sum = |of: fn(&Growth) -> f64| all().map(of).sum::<f64>();
            sum(|of| of.own_s) / sum(|of| of.samples)
        };
        let ratio = each(self) / each(first);
        (matches!(self.kind, Kind::Stacks | Kind::Depth) && ratio.is_finite()).then_some(ratio)
    }
}

/// As JSON: a list of points.
pub(crate) fn json(points: &[Point]) -> Value {
    let repetition = |of: &Option<Growth>| {
        of.map(|of| {
            json!({
                "alone_s": of.alone_s, "with_s": of.with_s, "own_s": of.own_s,
                "samples": of.samples, "lost": of.lost,
            })
        })
    };
    let point = |point: &Point| {
        json!({
            "what": point.kind.name(), "at": point.at, "slowdown": point.slowdown().json(),
            "of_a_pair": point.repetitions.iter().map(repetition).collect::<Vec<_>>(),
        })
    };
    points.iter().map(point).collect()
}

/// As tables for the terminal.
pub(crate) fn text(points: &[Point]) -> String {
    let mut out = "\nCPU time added to a pair of malloc and free, and samplerd's for a sample,\n\
                   by those at the first point; median [quartiles]\n"
        .to_owned();
    for kind in Kind::ALL {
        let points: Vec<&Point> = points.iter().filter(|point| point.kind == kind).collect();
        let Some(first) = points.first() else { continue };
        for point in &points {
            let Spread { low, median, high, .. } = point.added(first);
            let sample = point.own_per_sample(first);
            let sample = sample.map_or_else(String::new, |ratio| format!("sample ×{ratio:.2}"));
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "  {:<16}{:>7}  ×{median:<6.2}[{low:.2} … {high:.2}]  slowdown ×{:<7.1}{sample}",
                kind.name(),
                point.at,
                point.slowdown().median
            );
        }
    }
    out
}

/// Measures all points. A point that fails is printed and left out.
pub(crate) fn measure(plan: Plan, scratch: &Scratch) -> Vec<Point> {
    let points = |kind: Kind| kind.points().iter().map(move |at| (kind, *at));
    let mut all: Vec<Point> = Kind::ALL
        .into_iter()
        .flat_map(points)
        .map(|(kind, at)| Point { kind, at, repetitions: Vec::new() })
        .collect();
    let mut random = Rng::with_seed(plan.seed);
    let progress = Progress::of("growth", plan.repetitions as usize * all.len());
    for _ in 0..plan.repetitions {
        let mut order: Vec<usize> = (0..all.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            let point = &mut all[index];
            let growth = once(point, plan.seconds, scratch);
            if let Err(error) = &growth {
                progress.say(format_args!("{} {}: {error:#}", point.at, point.kind.name()));
            }
            progress.done();
            point.repetitions.push(growth.ok());
        }
    }
    all
}

fn once(point: &Point, seconds: f64, scratch: &Scratch) -> Result<Growth> {
    let (processes, command) = point.kind.command(point.at)?;
    let threads = if point.kind == Kind::Threads { point.at } else { 1 };
    let start = || {
        let protocol = Protocol::Lines { input: PAIRS.to_string(), greets: false };
        Program::spawn("a program that grows", &command, Layout::Random, &[], protocol, scratch)
    };
    let mut programs = (0..processes).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let pairs = f64::from(PAIRS * threads);
    let first = programs.first().context("no program")?.pid();
    nobody_probes(first)?;
    let alone_s = rounds(&mut programs, seconds)? / pairs;
    let pids: Vec<u32> = programs.iter().map(Program::pid).collect();
    let options = [&["--until-stdin-closes"], point.kind.options()].concat();
    let daemon = Daemon::start(&pids, &options)?;
    if point.kind == Kind::Live {
        programs.iter_mut().try_for_each(|program| program.tell("hold"))?;
        daemon.sampler(&["set", "--interval", "512KiB"])?.success("sampler set")?;
    }
    programs.iter_mut().try_for_each(|program| program.round().map(drop))?;
    let (before, own_s, mut done) = (samples(&daemon)?, clock::tree(daemon.pid()), 0.0);
    let with_s = rounds_counted(&mut programs, seconds, &mut done)? / pairs;
    let own_s = clock::tree(daemon.pid()) - own_s;
    let after = samples(&daemon)?;
    daemon.stop()?;
    let all = done * pairs;
    Ok(Growth {
        alone_s,
        with_s,
        own_s: own_s / all,
        samples: (after.taken - before.taken) / all,
        lost: (after.lost - before.lost) / all,
    })
}

fn samples(daemon: &Daemon) -> Result<Samples> {
    let status = daemon.status()?;
    let count = |name| daemon::outcome(&status, name) as f64;
    Ok(Samples { taken: count("sampled") + count("ring_full"), lost: count("ring_full") })
}

/// Mean CPU seconds of a round.
fn rounds(programs: &mut [Program], seconds: f64) -> Result<f64> {
    rounds_counted(programs, seconds, &mut 0.0)
}

/// [`rounds`]; adds the number of rounds to `done`.
fn rounds_counted(programs: &mut [Program], seconds: f64, done: &mut f64) -> Result<f64> {
    let (mut cpu_s, mut count, start) = (0.0, 0.0, Instant::now());
    let patience = Duration::from_secs_f64(4.0 * seconds);
    while count == 0.0 || (cpu_s < seconds && start.elapsed() < patience) {
        for program in programs.iter_mut() {
            cpu_s += program.round()?.cpu_s;
            count += 1.0;
        }
    }
    *done += count;
    Ok(cpu_s / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: u32, repetitions: &[Option<(f64, f64, f64)>]) -> Point {
        let growth =
            |(with_s, own_s, samples)| Growth { alone_s: 1.0, with_s, own_s, samples, lost: 0.0 };
        let repetitions = repetitions.iter().map(|of| of.map(growth)).collect();
        Point { kind: Kind::Depth, at, repetitions }
    }

    #[test]
    fn points_are_compared_within_a_repetition() {
        let first = point(1, &[Some((2.0, 0.5, 1.0)), None, Some((5.0, 0.5, 1.0))]);
        let other =
            point(9, &[Some((4.0, 3.0, 2.0)), Some((9.0, 3.0, 2.0)), Some((5.0, 3.0, 2.0))]);
        // The expected ratios are (4 − 1) / (2 − 1) and (5 − 1) / (5 − 1).
        let added = other.added(&first);
        assert_eq!((added.n, added.min, added.max), (2, 1.0, 3.0));
        assert_eq!(other.slowdown().median, 5.0);
        // The expected ratio is 1.5 for a sample by 0.5.
        assert_eq!(other.own_per_sample(&first), Some(3.0));
        assert_eq!(other.own_per_sample(&point(1, &[None])), None);
    }
}
