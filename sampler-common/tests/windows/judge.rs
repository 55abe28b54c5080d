//! Runs of a program in windows, from plans to estimates, held against what it did.

use crate::common::SplitMix;
use crate::program::{Machine, Marker, Program, SAMPLED};
use crate::run::{BYTES, Begin, CLASS, Probes, Run, Seen};
use sampler_common::duty::{
    Budget, Controller, Counted, Counts, Fit, Groups, Lead, Ledger, Progress, TALLIES, Timers,
    Usual, WindowCost,
};
use sampler_common::estimate::{Confidence, Estimate, Estimator, Reference, everything, of_row};
use sampler_common::limits::CLASSES;
use sampler_common::wire::UNKNOWN_TALLY;

/// Runs of a program.
const RUNS: usize = 200;
/// Strata of a short life.
const SHORT: usize = 16;

/// When a program ends.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Life {
    /// With its last stratum, of so many as its host has windows.
    Long,
    /// Anywhere in its last stratum, of [`SHORT`]: before the window, in it, or behind it.
    Short,
}

/// Estimate and truth of the allocations of a run.
fn run(
    program: &Program,
    machine: Machine,
    marker: Marker,
    (begin, life): (Begin, Life),
    seed: u64,
) -> (Estimate, f64) {
    let budget = Budget::parse(machine.host.budget).expect("a budget");
    let timers = Timers::new(budget, machine.host.tick_ns, 0.0);
    let mut rng = SplitMix(seed);
    let own = rng.uniform() * program.period;
    let (user, truth, spent, calls) = (0.0, 0.0, 0.0, 0.0);
    let (is_marked, looks) = (false, [0.0; 2]);
    let mut run = Run {
        program,
        timers,
        rng,
        own,
        user,
        truth,
        machine,
        spent,
        marker,
        calls,
        is_marked,
        looks,
        exit: f64::INFINITY,
    };
    let (mut controller, mut lead) =
        (Controller::new(budget, timers), Lead::new(timers.unit(true)));
    let usual = machine.usual();
    let mut groups = Groups::new(usual);
    marker.tallies().for_each(|at| groups.tallies_mut()[at].look(run.look(at)));
    let (mut is_marked, mut began, mut fit) = (false, 0.0f64, Fit::default());
    let to = |run: &mut Run, tick: f64| {
        while run.clock() < tick && !run.is_over() {
            let missing = (tick * timers.unit(false) - run.user).max(1.0);
            run.step(missing.min(timers.unit(true)), Probes::None);
        }
    };
    let strata = if life == Life::Long { machine.host.windows } else { SHORT };
    for stratum in 1..=strata {
        // What has passed since the stratum's end belongs to none.
        let clock = run.clock();
        began = began.max(clock);
        let own_ns = run.user;
        let ledger = Ledger { clock: clock as u64, own_ns, spent_ns: run.spent };
        let random = &mut run.rng;
        let mut plan = controller.next(&ledger, is_marked, || random.uniform());
        let place = began + plan.offset as f64;
        let early = plan.place_marking((place - clock) as i64, timers);
        if life == Life::Short && stratum == strata {
            run.exit = (began + run.rng.uniform() * plan.length as f64) * timers.unit(false);
        }
        to(&mut run, place - early as f64);
        let by = controller.steps_by(&plan, &groups);
        let seen = if run.is_over() { None } else { run.window(plan, &mut lead, begin, by) };
        let Some(Seen { window, allocations: seen, cost, marked, steps, lasted_ns }) = seen else {
            break;
        };
        let frees = window.frees.then_some(seen);
        let more = Usual::TRAPS_OF_SAMPLE * SAMPLED * seen + marked.map_or(0.0, |of| of.own);
        let (clock_ns, chance) = (cost.length_ns, cost.chance());
        let pace = groups.pace(&Counts { clock_ns, chance, allocations: seen, frees, more });
        let drag_ns = lasted_ns * (1.0 - 1.0 / pace.factor(groups.drag().ns));
        run.spent += drag_ns;
        controller.ended(&WindowCost { drag_ns, ..cost });
        controller.tallied(groups.counts_in_tick());
        if let Some(of) = &marked {
            fit.add(of.inside, seen);
        }
        groups.judge_marks(fit.of_calls(), fit.model());
        let [opened, closed] = run.looks;
        // A few windows meet what takes most of the bytes, with as many allocations as other things.
        let is_large = matches!(marker, Marker::Unlike(_)) && run.rng.uniform() < 0.2;
        let bytes = if is_large { 20.0 * BYTES * seen } else { BYTES * seen };
        let mut tallied = [None; TALLIES];
        for at in marker.tallies() {
            let shown = |calls| if calls < 0.0 { UNKNOWN_TALLY } else { run.counted(at, calls) };
            let ends = [opened, closed].map(shown);
            let tally = &mut groups.tallies_mut()[at];
            tallied[at] = tally.window(ends, [bytes, seen]);
            tally.look(run.look(at));
        }
        is_marked |= marker.is_probed() && groups.want_marks();
        is_marked &= !fit.is_bad();
        let stepped = by.filter(|_| steps.is_some_and(|of| of.are_both()));
        let counted = Counted { calls: marked, tallied, stepped };
        let mut objects = [0; CLASSES];
        objects[CLASS] = seen.round() as u64;
        groups.add(window.length, window.share, &objects, &objects, pace, counted);
        began += plan.length as f64;
    }
    to(&mut run, began);
    // Of the last stratum: what it has come forward by, or, where its window stands for all of it, what it lacks.
    let tail = if life == Life::Long { 0.0 } else { run.clock() - began };
    (estimate(&groups, &run, tail), run.truth)
}

/// As the daemon makes it.
fn estimate(groups: &Groups, run: &Run, tail: f64) -> Estimate {
    let clock = run.clock();
    let factor = clock / (groups.length() + tail);
    let mut looks = [None; TALLIES];
    run.marker.tallies().for_each(|at| looks[at] = Some(run.look(at)));
    let all = Progress { factor, tail, clock, looks };
    let (clusters, _) = groups.clusters(&all);
    let mut reference = Reference { interval_bytes: 1.0, ..Reference::default() };
    reference.clusters.insert(0, clusters);
    let all = everything(&reference, Estimator::default());
    of_row(&all, &reference, Estimator::default(), Confidence::DEFAULT).alloc_space
}

/// Mean of estimates by truth, minus 1, with its standard error; how many intervals have the truth; and the mean half of one, by the estimate.
pub(crate) fn judge(
    program: &Program,
    machine: Machine,
    marker: Marker,
    how: (Begin, Life),
) -> (f64, f64, f64, f64) {
    let seed = |at| 77 + at * 1_000_003;
    let runs: Vec<(Estimate, f64)> =
        (0..RUNS as u64).map(|at| run(program, machine, marker, how, seed(at))).collect();
    let n = RUNS as f64;
    let off: Vec<f64> = runs.iter().map(|(of, truth)| of.value / truth - 1.0).collect();
    let bias = off.iter().sum::<f64>() / n;
    let error = (off.iter().map(|of| (of - bias).powi(2)).sum::<f64>() / (n * (n - 1.0))).sqrt();
    // Steps are as long as ticks: what is closer than that is met.
    let is_close = |of: &Estimate, truth: f64| (of.value / truth - 1.0).abs() < 0.005;
    let covers = |(of, truth): &&(Estimate, f64)| {
        of.low <= *truth && *truth <= of.high || is_close(of, *truth)
    };
    let inside = runs.iter().filter(covers).count() as f64 / n;
    let width = runs.iter().map(|(of, _)| (of.high - of.low) / 2.0 / of.value).sum::<f64>() / n;
    println!(
        "{} {machine:?} {marker:?}: bias {bias:+.4} ± {error:.4}, {inside:.3} inside, intervals ± {width:.3}",
        program.name
    );
    (bias, error, inside, width)
}
