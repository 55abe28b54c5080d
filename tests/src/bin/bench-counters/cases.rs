//! The cases that are run: a counter, a number of threads, a number of events.

use crate::counters::{ExchangeFirst, Interlocked, Line, Racing, Sharded};
use sampler_common::counting::{Counter, Scalable, Switch, Worker};
use sampler_common::sampling::Random;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Events of each thread in the cases that compare numbers of threads, and of all threads in the
/// sweep.
pub(crate) const EVENTS: u64 = 1 << 18;
/// How often a run is tried if its threads did not all run to their end without a pause.
const TRIES: usize = 20;
/// Share of a run's time in which threads may have waited.
const PAUSES: f64 = 0.1;

/// A way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Load, add, store.
    Racing,
    /// Atomic addition.
    Interlocked,
    /// Approximate above the switch-over.
    Scalable(Switch),
    /// Approximate where an exchange fails.
    ExchangeFirst(Switch),
    /// A word for each thread.
    Sharded,
}

impl Kind {
    /// The ways that are compared; the scalable ones have the default switch-over.
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Racing,
        Kind::Interlocked,
        Kind::Scalable(Switch::DEFAULT),
        Kind::CAPPED,
        Kind::ExchangeFirst(Switch::DEFAULT),
        Kind::Sharded,
    ];

    /// The scalable counter with quanta of 16 at most.
    pub(crate) const CAPPED: Kind = Kind::Scalable(Switch::DEFAULT.capped(4));

    /// The name in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Kind::Racing => "racing".into(),
            Kind::Interlocked => "interlocked".into(),
            Kind::CAPPED => "scalable 2^13, q ≤ 16".into(),
            Kind::Scalable(switch) => format!("scalable 2^{}", switch.log2()),
            Kind::ExchangeFirst(_) => "exchange first 2^13".into(),
            Kind::Sharded => "sharded".into(),
        }
    }
}

/// One case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// The counter.
    pub(crate) kind: Kind,
    /// Number of counting threads.
    pub(crate) threads: usize,
    /// Events that each thread counts.
    pub(crate) each: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The counter's value divided by the number of events.
    pub(crate) share: f64,
    /// CPU time of an event, nanoseconds.
    pub(crate) time_ns: f64,
    /// Share of the time, from the first thread's beginning to the last one's end, that the threads
    /// did not have a processor.
    pub(crate) waited: f64,
}

impl Run {
    /// Whether all threads ran at the same time from beginning to end.
    pub(crate) fn is_parallel(&self) -> bool {
        self.waited < PAUSES
    }
}

impl Case {
    /// All cases on a machine of `cpus` processors.
    pub(crate) fn all(cpus: usize) -> Vec<Case> {
        let several = several(cpus);
        let mut cases = Vec::new();
        for kind in Kind::ALL {
            cases.extend([1, several, 2 * several].map(|threads| Case {
                kind,
                threads,
                each: EVENTS,
            }));
            cases.extend((4..=20).step_by(2).map(|log2| Case {
                kind,
                threads: several,
                each: (1 << log2) / several as u64,
            }));
        }
        for log2 in Switch::MIN_LOG2..=Switch::MAX_LOG2 {
            if let Some(switch) = Switch::at(log2) {
                let kind = Kind::Scalable(switch);
                cases.push(Case { kind, threads: several, each: EVENTS });
            }
        }
        cases.sort_by_key(|case| (case.threads, case.each, case.kind.name()));
        cases.dedup();
        cases
    }

    /// Runs the case with random sources that depend on `seed`. Threads that do not run at the same
    /// time do not contend. On a machine with other work the run is therefore repeated until all
    /// threads run at the same time. The least disturbed of some tries counts.
    pub(crate) fn run(&self, seed: u64, cpus: usize) -> Run {
        let mut run = self.attempt(seed, cpus);
        let tries = if self.threads <= cpus { TRIES } else { 1 };
        for _ in 1..tries {
            if run.is_parallel() {
                break;
            }
            let other = self.attempt(seed, cpus);
            run = if other.waited < run.waited { other } else { run };
        }
        run
    }

    fn attempt(&self, seed: u64, cpus: usize) -> Run {
        let word = || AtomicU64::new(0);
        match self.kind {
            Kind::Racing => self.count(&Line(Racing(word())).0, seed, cpus),
            Kind::Interlocked => self.count(&Line(Interlocked(word())).0, seed, cpus),
            Kind::Scalable(switch) => {
                self.count(&Line(Scalable { word: word(), switch }).0, seed, cpus)
            }
            Kind::ExchangeFirst(switch) => {
                self.count(&Line(ExchangeFirst { word: word(), switch }).0, seed, cpus)
            }
            Kind::Sharded => {
                let lines: Vec<Line<AtomicU64>> =
                    (0..self.threads).map(|_| Line::default()).collect();
                self.count(&Sharded(&lines), seed, cpus)
            }
        }
    }

    fn count<C: Counter + Sync>(&self, counter: &C, seed: u64, cpus: usize) -> Run {
        let ready = AtomicUsize::new(0);
        let work = |number: usize| {
            pin(number % cpus);
            let random = Bits(fastrand::Rng::with_seed(seed << 8 | number as u64));
            let mut worker = Worker { number, random };
            // All threads begin at once, as nearly as the machine allows.
            ready.fetch_add(1, SeqCst);
            let mut spins = 0u32;
            while ready.load(SeqCst) < self.threads {
                spins += 1;
                if spins.is_multiple_of(1000) {
                    thread::yield_now()
                } else {
                    std::hint::spin_loop()
                }
            }
            let (begin, start) = (Instant::now(), thread_time());
            for _ in 0..self.each {
                // `black_box` prevents the compiler from moving the sum out of the loop.
                std::hint::black_box(counter).count(&mut worker);
            }
            (thread_time() - start, begin, Instant::now())
        };
        let times: Vec<(Duration, Instant, Instant)> = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..self.threads).map(|number| scope.spawn(move || work(number))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let time: Duration = times.iter().map(|(time, _, _)| time).sum();
        let begin = times.iter().map(|(_, begin, _)| begin).min();
        let end = times.iter().map(|(_, _, end)| end).max();
        let span = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end.duration_since(*begin));
        let events = (self.each * self.threads as u64) as f64;
        Run {
            share: counter.value() as f64 / events,
            time_ns: time.as_nanos() as f64 / events,
            waited: 1.0 - time.as_secs_f64() / span.as_secs_f64() / self.threads as f64,
        }
    }
}

/// As many threads as processors, two at least.
pub(crate) fn several(cpus: usize) -> usize {
    cpus.max(2)
}

/// A thread's source of random bits.
pub(crate) struct Bits(pub(crate) fastrand::Rng);

impl Random for Bits {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }
}

/// Keeps this thread on one processor, if that is allowed.
fn pin(cpu: usize) {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &cpus);
}

/// CPU time of this thread. The time of other programs is not counted.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
