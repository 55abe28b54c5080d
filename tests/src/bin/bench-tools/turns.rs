//! Two processes of a program that take turns.

use crate::program::{Cost, Program};
use anyhow::{Context, Result};
use fastrand::Rng;
use sampler_tests::child::kill;
use std::time::{Duration, Instant};

/// CPU seconds of a turn that consists of rounds.
const BLOCK_S: f64 = 0.1;
/// Duration of a turn of processes that are stopped and continued.
const TURN: Duration = Duration::from_millis(250);
/// Longest elapsed time, for each second of planned CPU time. On a busy machine the turns end
/// early.
const MAX_SECONDS_PER_CPU_SECOND: f64 = 6.0;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// Costs of one turn of both processes.
pub(crate) type Turn = [Cost; 2];

/// Runs rounds for at least this many seconds of CPU time, one round at least.
///
/// # Errors
/// If the program fails.
pub(crate) fn block(program: &mut Program, seconds: f64) -> Result<Cost> {
    let mut sum = Cost::default();
    while sum.rounds == 0 || (sum.cpu_s < seconds && !program.is_over()) {
        sum.add(program.round()?);
    }
    Ok(sum)
}

/// Runs turns of some rounds each, in random order, until the second process has used this many
/// seconds of CPU time.
///
/// # Errors
/// If one of the processes fails.
pub(crate) fn of_rounds(
    one: &mut Program,
    other: &mut Program,
    seconds: f64,
    random: &mut Rng,
) -> Result<Vec<Turn>> {
    let (mut turns, mut used_s, start) = (Vec::new(), 0.0, Instant::now());
    let patience = Duration::from_secs_f64(MAX_SECONDS_PER_CPU_SECOND * seconds);
    while used_s < seconds && start.elapsed() < patience {
        let turn: Turn = match random.bool() {
            true => [block(one, BLOCK_S)?, block(other, BLOCK_S)?],
            false => {
                let of_other = block(other, BLOCK_S)?;
                [block(one, BLOCK_S)?, of_other]
            }
        };
        used_s += turn[1].cpu_s;
        turns.push(turn);
    }
    Ok(turns)
}

/// Runs a round that ends each process, by turns: the process that does not have its turn is
/// stopped.
///
/// # Errors
/// If one of the processes fails.
pub(crate) fn stopping(one: &mut Program, other: &mut Program) -> Result<Vec<Turn>> {
    let pids = [one.pid(), other.pid()];
    let of_both = std::thread::scope(|scope| {
        let rounds = [scope.spawn(|| one.round()), scope.spawn(|| other.round())];
        let signal = |of: usize, signal| {
            if !rounds[of].is_finished() {
                // The process may end just now. The other then goes on alone.
                let _ = kill(pids[of], signal);
            }
        };
        let mut turn = 0;
        while rounds.iter().all(|round| !round.is_finished()) {
            signal(1 - turn, SIGSTOP);
            signal(turn, SIGCONT);
            std::thread::sleep(TURN);
            turn = 1 - turn;
        }
        [0, 1].iter().for_each(|of| signal(*of, SIGCONT));
        rounds.map(|round| round.join().ok())
    });
    let [of_one, of_other] = of_both.map(|cost| cost.context("a round panicked"));
    Ok(vec![[of_one??, of_other??]])
}

/// Sums of all turns.
pub(crate) fn sums(turns: &[Turn]) -> Turn {
    let mut sums = Turn::default();
    for turn in turns {
        sums.iter_mut().zip(turn).for_each(|(sum, of)| sum.add(*of));
    }
    sums
}

/// CPU time of a round of the second process divided by that of the first, with the standard error
/// of a jackknife over turns. The error is infinite with only one turn.
pub(crate) fn ratio(turns: &[Turn]) -> (f64, f64) {
    let of = |[one, other]: Turn| {
        let each = |cost: Cost| cost.cpu_s / f64::from(cost.rounds);
        each(other) / each(one)
    };
    let all = sums(turns);
    let n = turns.len() as f64;
    if turns.len() < 2 {
        return (of(all), f64::INFINITY);
    }
    let without = |turn: &Turn| {
        let mut left = all;
        for (sum, of) in left.iter_mut().zip(turn) {
            sum.cpu_s -= of.cpu_s;
            sum.rounds -= of.rounds;
        }
        of(left)
    };
    let left: Vec<f64> = turns.iter().map(without).collect();
    let mean = left.iter().sum::<f64>() / n;
    let squares: f64 = left.iter().map(|of| (of - mean).powi(2)).sum();
    (of(all), (squares * (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(cpu_s: f64, rounds: u32) -> Cost {
        Cost { cpu_s, wall_s: cpu_s, rounds }
    }

    #[test]
    fn common_drift_is_no_slowdown() {
        let turn = |at: u32| {
            let slow = 1.0 + 0.5 * f64::from(at % 5);
            // 1.02 with noise of either sign, equally often.
            let noise = if at.is_multiple_of(2) { 0.01 } else { -0.01 };
            [cost(slow, 10), cost(slow * (1.02 + noise), 10)]
        };
        let turns: Vec<Turn> = (0..40).map(turn).collect();
        let (ratio, error) = ratio(&turns);
        assert!((ratio - 1.02).abs() < 1e-3, "{ratio}");
        assert!((0.0005..0.003).contains(&error), "{error}");
    }

    #[test]
    fn one_turn_has_an_infinite_error() {
        let (ratio, error) = ratio(&[[cost(2.0, 2), cost(3.0, 2)]]);
        assert!(ratio == 1.5 && error.is_infinite());
    }
}
