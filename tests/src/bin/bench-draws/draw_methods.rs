//! Methods of deciding which allocations are sampled.

use crate::thread_time;
use sampler_common::sampling::{Cell, Decision, Design, Random, Rate, Strategy, decide, draw};
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// Number of draws that one measurement times.
const DRAWS: u32 = 1 << 18;

/// A method of deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrawMethod {
    /// Bytes to the next sample: −R·ln U in floating point.
    Exponential,
    /// Bytes to the next sample: ⌊ln U/ln(1 − p)⌋ + 1, the logarithm in floating point.
    Geometric,
    /// [`decide()`] with a geometric design: hazard in integers, the cell not atomic.
    Integer,
    /// [`decide()`] with a geometric design and the atomic cell that preemption requires, as in the
    /// eBPF program.
    IntegerAtomic,
    /// [`decide()`] with a Poisson design, the cell not atomic.
    IntegerPoisson,
    /// The number of points in each allocation, Poisson of mean s/R, by inversion.
    PoissonEach,
}

/// Decides whether a request is sampled.
trait Decide {
    fn hit(&mut self, size: u64) -> bool;
}

impl DrawMethod {
    /// All methods.
    pub(crate) const ALL: [DrawMethod; 6] = [
        DrawMethod::Exponential,
        DrawMethod::Geometric,
        DrawMethod::Integer,
        DrawMethod::IntegerAtomic,
        DrawMethod::IntegerPoisson,
        DrawMethod::PoissonEach,
    ];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DrawMethod::Exponential => "exponential countdown, −R·ln U",
            DrawMethod::Geometric => "geometric countdown, ln U/ln(1−p)",
            DrawMethod::Integer => "ours, geometric, integers",
            DrawMethod::IntegerAtomic => "ours, geometric, atomic",
            DrawMethod::IntegerPoisson => "ours, poisson, integers",
            DrawMethod::PoissonEach => "Poisson draw each allocation",
        }
    }

    /// Chance that an allocation of `size` bytes is sampled.
    pub(crate) fn inclusion(self, size: u64, interval: u64) -> f64 {
        let (size, interval) = (size as f64, interval as f64);
        match self {
            DrawMethod::Exponential | DrawMethod::PoissonEach => -(-size / interval).exp_m1(),
            // From a chance of 99 % on, the sample is certain.
            DrawMethod::IntegerPoisson if size / interval >= 100f64.ln() => 1.0,
            DrawMethod::IntegerPoisson => -(-size / interval).exp_m1(),
            _ => -(size * (-1.0 / interval).ln_1p()).exp_m1(),
        }
    }

    /// Nanoseconds for each allocation, and how many of `sizes` were sampled.
    pub(crate) fn time(self, sizes: &[u64], interval: u64, seed: u64) -> (f64, u64) {
        let random = Bits(fastrand::Rng::with_seed(seed));
        let rate = interval as f64;
        match self {
            DrawMethod::Exponential => {
                run(sizes, Countdown { left: random.clone().exponential(rate), rate, random })
            }
            DrawMethod::Geometric => {
                let log = (-1.0 / rate).ln_1p();
                run(sizes, Geometric { left: random.clone().geometric(log), log, random })
            }
            DrawMethod::Integer => {
                let cell = || Plain(std::cell::Cell::new(0));
                run(
                    sizes,
                    Ours {
                        design: design(Strategy::Geometric, interval),
                        countdown: cell(),
                        position: cell(),
                        random,
                    },
                )
            }
            DrawMethod::IntegerAtomic => {
                let cell = || Atomic(AtomicI64::new(0));
                run(
                    sizes,
                    Ours {
                        design: design(Strategy::Geometric, interval),
                        countdown: cell(),
                        position: cell(),
                        random,
                    },
                )
            }
            DrawMethod::IntegerPoisson => {
                let cell = || Plain(std::cell::Cell::new(0));
                run(
                    sizes,
                    Ours {
                        design: design(Strategy::Poisson, interval),
                        countdown: cell(),
                        position: cell(),
                        random,
                    },
                )
            }
            DrawMethod::PoissonEach => run(sizes, PoissonEach { rate, random }),
        }
    }

    /// Nanoseconds of the draw alone. Countdown methods draw once for each sample.
    pub(crate) fn time_draws(self, interval: u64, seed: u64) -> f64 {
        let mut random = Bits(fastrand::Rng::with_seed(seed));
        let rate = interval as f64;
        let log = (-1.0 / rate).ln_1p();
        let start = thread_time();
        for _ in 0..DRAWS {
            match self {
                DrawMethod::Exponential => drop(black_box(random.exponential(rate))),
                DrawMethod::Geometric => drop(black_box(random.geometric(log))),
                DrawMethod::PoissonEach => drop(black_box(random.poisson(black_box(64.0 / rate)))),
                _ => drop(black_box(draw(random.next()))),
            }
        }
        (thread_time() - start).as_nanos() as f64 / f64::from(DRAWS)
    }
}

fn design(strategy: Strategy, interval: u64) -> Design {
    // A Poisson process has λ = 1/R. A Bernoulli trial for each byte has λ = −ln(1 − 1/R).
    let bytes = Rate::from_interval(interval).unwrap_or(Rate::NEVER);
    match strategy {
        Strategy::Poisson => Design::new(strategy, Rate::from_raw((1u64 << 48) / interval)),
        _ => Design::new(strategy, bytes),
    }
}

/// Inlined for each method, so that no method pays for a call that the others do not make.
fn run(sizes: &[u64], mut way: impl Decide) -> (f64, u64) {
    let mut samples = 0;
    let start = thread_time();
    for size in sizes {
        if way.hit(black_box(*size)) {
            samples += 1;
        }
    }
    let time = thread_time() - start;
    (time.as_nanos() as f64 / sizes.len() as f64, samples)
}

/// A source of random bits with the distributions of the methods.
#[derive(Clone)]
struct Bits(fastrand::Rng);

impl Random for Bits {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }
}

impl Bits {
    /// A uniform number in (0, 1].
    #[inline(always)]
    fn uniform(&mut self) -> f64 {
        1.0 - self.0.f64()
    }

    #[inline(always)]
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    #[inline(always)]
    fn geometric(&mut self, log_miss: f64) -> i64 {
        (self.uniform().ln() / log_miss) as i64 + 1
    }

    /// A Poisson number by inversion: the chances of 0, 1, 2 … are subtracted from one uniform
    /// number.
    #[inline(always)]
    fn poisson(&mut self, mean: f64) -> u32 {
        let mut chance = (-mean).exp();
        let mut rest = self.0.f64() - chance;
        let mut points = 0;
        // A chance of 0 ends the loop if rounding left a rest.
        while rest >= 0.0 && chance > 0.0 {
            points += 1;
            chance *= mean / f64::from(points);
            rest -= chance;
        }
        points
    }
}

struct Countdown {
    left: f64,
    rate: f64,
    random: Bits,
}

impl Decide for Countdown {
    #[inline(always)]
    fn hit(&mut self, size: u64) -> bool {
        self.left -= size as f64;
        if self.left > 0.0 {
            return false;
        }
        self.left = self.random.exponential(self.rate);
        true
    }
}

struct Geometric {
    left: i64,
    log: f64,
    random: Bits,
}

impl Decide for Geometric {
    #[inline(always)]
    fn hit(&mut self, size: u64) -> bool {
        self.left -= size as i64;
        if self.left > 0 {
            return false;
        }
        self.left = self.random.geometric(self.log);
        true
    }
}

struct Ours<C> {
    design: Design,
    countdown: C,
    position: C,
    random: Bits,
}

impl<C: Cell> Decide for Ours<C> {
    #[inline(always)]
    fn hit(&mut self, size: u64) -> bool {
        let (countdown, position) = (&self.countdown, &self.position);
        decide(black_box(self.design), size, countdown, position, &mut self.random)
            != Decision::Miss
    }
}

struct PoissonEach {
    rate: f64,
    random: Bits,
}

impl Decide for PoissonEach {
    #[inline(always)]
    fn hit(&mut self, size: u64) -> bool {
        self.random.poisson(size as f64 / self.rate) > 0
    }
}

/// A cell of one thread.
struct Plain(std::cell::Cell<i64>);

impl Cell for Plain {
    #[inline(always)]
    fn fetch_sub(&self, amount: i64) -> i64 {
        self.0.replace(self.0.get().wrapping_sub(amount))
    }

    #[inline(always)]
    fn swap(&self, value: i64) -> i64 {
        self.0.replace(value)
    }
}

struct Atomic(AtomicI64);

impl Cell for Atomic {
    #[inline(always)]
    fn fetch_sub(&self, amount: i64) -> i64 {
        self.0.fetch_sub(amount, SeqCst)
    }

    #[inline(always)]
    fn swap(&self, value: i64) -> i64 {
        self.0.swap(value, SeqCst)
    }
}
