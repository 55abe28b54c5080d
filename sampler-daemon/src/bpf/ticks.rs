//! Measures what a tick takes of the CPU that it comes to ([`sampler_common::duty::Ticks`]).

use super::cpu_timers::CpuTimers;
use sampler_common::duty::{Ticks, Watched};
use std::time::{Duration, Instant};

/// How long the clock is looked at without ticks, and with them.
const RUN: Duration = Duration::from_micros(1_500);
/// Looks before anything is planned: 30 ms of CPU time.
const FIRST_LOOKS: u32 = 10;
/// How often there is another one, while windows need it.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// The first looks; the timers are off before and after.
pub(super) fn first(timers: &mut CpuTimers, period_ns: u64) -> Ticks {
    let mut ticks = Ticks::default();
    (0..FIRST_LOOKS).for_each(|_| look(&mut ticks, timers, period_ns));
    ticks
}

/// Another look; the timers are off before and after.
pub(super) fn look(ticks: &mut Ticks, timers: &mut CpuTimers, period_ns: u64) {
    let without = watch(period_ns);
    let switched = timers.switch(true);
    let with = watch(period_ns);
    if let Err(error) = timers.switch(false).and(switched) {
        return tracing::warn!("switch a timer: {error}");
    }
    ticks.look(without, with, period_ns as f64);
}

/// Does nothing but look at the clock.
fn watch(period_ns: u64) -> Watched {
    let mut watched = Watched::default();
    let began = Instant::now();
    let mut last = began;
    while last.duration_since(began) < RUN {
        let now = Instant::now();
        watched.step(now.duration_since(last).as_nanos() as f64, period_ns as f64);
        last = now;
    }
    watched
}
