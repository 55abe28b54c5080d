//! Cost of the in-process sampler as a preloaded library (`sampler run --preload`). The benchmark
//! measures:
//!
//! * the library while samplerd listens and follows frees;
//! * a library that only forwards malloc and free;
//! * the in-process sampler while nobody listens;
//! * a listener that does nothing: every listener of `otel_memory` causes two traps, for a sample
//!   and for its end.
//!
//! A machine's speed changes by more than a few percent within a minute. Programs with and without
//! the library therefore take turns, as in [`crate::windows`]. Two processes of a program are not
//! equally fast either, because their memory is laid out differently. Each is started several
//! times, laid out at random. A fixed layout ([`Layout::Fixed`]) would not make processes alike,
//! since a library and its variable move their neighbours. All pairs would only have the same
//! random error. Listeners attach and detach within one process. Their cost is therefore known
//! better than the cost of the library.

use crate::attached::Attached;
use crate::layout::Layout;
use crate::pair::{Pair, slowdown_text};
use crate::scratch::Scratch;
use crate::tool::{Ours, Tool};
use crate::toolbox::ours;
use crate::workload::{self, Workload};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use sampler_common::limits::PRELOADED_PER_SECOND;
use sampler_common::units::grouped;
use sampler_daemon::bpf::bench::{Comparison, ComparisonProgram, Hook};
use sampler_daemon::inspect::usdt::Usdt;
use sampler_tests::build;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;

/// Largest slowdown of a program.
const SLOWDOWN: f64 = 1.02;
/// Pairs of processes for each program.
const PAIRS: u32 = 8;
/// Student's 97.5 % quantile for the mean of [`PAIRS`] values, divided by the normal quantile.
const STUDENT: f64 = 2.365 / 1.96;

/// Figures of a program with the library.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    workload: Workload,
    /// CPU time of a round divided by that without the library, with its standard error.
    slowdown: (f64, f64),
    /// Slowdown with samplerd's default limit of samples a second for each process.
    limited: (f64, f64),
    /// Slowdown by a library that only forwards.
    forwarding: (f64, f64),
    /// Slowdown by the in-process sampler while nobody listens.
    without_reader: (f64, f64),
    /// Share of the program's CPU time that empty programs at the probes add to `without_reader`.
    listener: (f64, f64),
    /// Share of the program's CPU time that samplerd adds to `without_reader`.
    samplerd: (f64, f64),
    /// CPU time of samplerd divided by the program's.
    own: f64,
    /// Samples in a second of the program's CPU time.
    rate: f64,
    /// Samples in a second of the program's CPU time, with the default limit.
    limited_rate: f64,
}

impl Sampled {
    fn verdict(&self) -> &'static str {
        // `bench preload` has the goal for programs that only make pairs of malloc and free.
        match self.workload {
            Workload::Pairs | Workload::PairsTwo => "",
            _ if self.slowdown.0 <= SLOWDOWN => "met",
            _ => "missed",
        }
    }

    fn cells(&self) -> [String; 9] {
        let Sampled {
            slowdown, limited, forwarding, without_reader, listener, samplerd, own, ..
        } = self;
        let [rate, limited_rate] =
            [self.rate, self.limited_rate].map(|rate| grouped(rate.round() as u64));
        let own = format!("{:.1} %", 100.0 * own);
        let [slowdown, limited, forwarding, without_reader] =
            [slowdown, limited, forwarding, without_reader].map(|of| slowdown_text(*of));
        let [listener, samplerd] = [listener, samplerd]
            .map(|(part, error)| format!("{:.2} ± {:.2} %", 100.0 * part, 196.0 * error));
        [slowdown, rate, limited, limited_rate, forwarding, without_reader, listener, samplerd, own]
    }
}

/// Who listens to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Nobody,
    /// Empty programs.
    Empty,
    /// samplerd at 512 KiB throughout.
    Samplerd,
    /// samplerd with its default limits.
    Limited,
}

impl Listener {
    const ALL: [Listener; 4] =
        [Listener::Nobody, Listener::Empty, Listener::Samplerd, Listener::Limited];
}

/// Runs every workload for this many seconds of CPU time with the library, once. A workload that
/// fails is printed and left out.
pub(crate) fn measure(
    workloads: &[Workload],
    seconds: f64,
    seed: u64,
    scratch: &Scratch,
) -> Vec<Sampled> {
    let mut random = Rng::with_seed(seed);
    workload::each(workloads, "library", |of| run(of, seconds, &mut random, scratch))
}

fn run(workload: Workload, seconds: f64, random: &mut Rng, scratch: &Scratch) -> Result<Sampled> {
    let sampling = Tool::Ours(Ours::Preload).environment(&scratch.path(""));
    let forward = build::compile_library("forward.c")?;
    let forwards = [("LD_PRELOAD", forward.display().to_string())];
    let each_s = seconds / f64::from(PAIRS);
    let empty = Comparison::load()?.program("empty", Hook::Entry)?;
    let (mut forwarding, mut of) = (Vec::new(), [const { Vec::new() }; 4]);
    let [mut cpu_s, mut own_s, mut samples] = [[0.0; 4]; 3];
    // samplerd's default limits, which the tests' daemon does not have. A process that takes turns
    // with another runs for half of a second. It gets half of the samples.
    let half = (PRELOADED_PER_SECOND / 2).to_string();
    let limits = ["--max-samples-per-second", "25000", "--max-samples-per-process", &half];
    let limited = [Ours::Preload.options(), &limits].concat();
    for _ in 0..PAIRS {
        {
            let mut pair = Pair::start(workload, each_s, Layout::Random, &forwards, None, scratch)?;
            pair.warm_up(each_s)?;
            forwarding.push(pair.run(each_s, random)?.slowdown().0);
        }
        let mut pair = Pair::start(workload, each_s, Layout::Random, &sampling, None, scratch)?;
        let mut listeners = Listener::ALL;
        random.shuffle(&mut listeners);
        for listener in listeners {
            if pair.is_once() && listener != listeners[0] {
                // The round of the process was its last.
                pair = Pair::start(workload, each_s, Layout::Random, &sampling, None, scratch)?;
            }
            pair.attached = match listener {
                Listener::Nobody => Attached::Nothing,
                Listener::Empty => listen(&empty, pair.pid())?,
                Listener::Samplerd => ours(pair.pid(), Ours::Preload.options())?,
                Listener::Limited => ours(pair.pid(), &limited)?,
            };
            pair.warm_up(each_s)?;
            let before = pair.attached.samples()?.taken;
            let turned = pair.run(each_s, random)?;
            let at = listener as usize;
            of[at].push(turned.slowdown().0);
            samples[at] += pair.attached.samples()?.taken - before;
            cpu_s[at] += turned.cpu_s();
            own_s[at] += turned.own() * turned.cpu_s();
            std::mem::replace(&mut pair.attached, Attached::Nothing).detach()?;
        }
    }
    let [without_reader, sampled, slowdown, limited] = of;
    let added = |to: &[f64]| -> Vec<f64> {
        without_reader.iter().zip(to).map(|(without, with)| with / without - 1.0).collect()
    };
    let rate = |of: Listener| samples[of as usize] / cpu_s[of as usize];
    let samplerd = Listener::Samplerd as usize;
    Ok(Sampled {
        workload,
        slowdown: mean(&slowdown),
        limited: mean(&limited),
        forwarding: mean(&forwarding),
        without_reader: mean(&without_reader),
        listener: mean(&added(&sampled)),
        samplerd: mean(&added(&slowdown)),
        own: own_s[samplerd] / cpu_s[samplerd],
        rate: rate(Listener::Samplerd),
        limited_rate: rate(Listener::Limited),
    })
}

/// Attaches `program` to all probes of the library in a process.
fn listen(program: &ComparisonProgram, pid: u32) -> Result<Attached> {
    let path = sampler_tests::preload::library()?;
    let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
    let usdt = Usdt::read(&file).with_context(|| format!("read {}", path.display()))?;
    let probes = usdt.probes.iter().map(|probe| (probe.offset, probe.semaphore.unwrap_or(0)));
    let probes: Vec<(u64, u64)> = probes.collect();
    ensure!(!probes.is_empty(), "{} has no probes", path.display());
    Ok(Attached::Links(vec![program.attach_usdts(&file, pid, &probes)?]))
}

/// The mean, and its error; 1.96 errors make the 95 % interval.
pub(crate) fn mean(of: &[f64]) -> (f64, f64) {
    let n = of.len() as f64;
    let mean = of.iter().sum::<f64>() / n;
    let squares: f64 = of.iter().map(|one| (one - mean).powi(2)).sum();
    (mean, STUDENT * (squares / (n - 1.0) / n).sqrt())
}

/// As a table for the terminal.
pub(crate) fn text(all: &[Sampled]) -> String {
    let mut out = format!(
        "\npreloaded library at 512 KiB: CPU time by that without (95 %); the same with the\n\
         default limit of samples; with nobody who listens; what a listener that does\n\
         nothing adds to that; goal of the first ≤ {SLOWDOWN}\n"
    );
    for of in all {
        let [slowdown, _, limited, _, _, without_reader, listener, ..] = of.cells();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<15}{slowdown:<15}{limited:<15}{without_reader:<15}{listener:>13} {}",
            of.workload.name(),
            of.verdict()
        );
    }
    out
}

/// As JSON: a list of programs.
pub(crate) fn json(all: &[Sampled]) -> Value {
    let one = |of: &Sampled| {
        json!({
            "workload": of.workload.name(), "slowdown": of.slowdown.0,
            "slowdown_error": of.slowdown.1, "limited": of.limited.0, "limited_error": of.limited.1,
            "limited_samples_per_second": of.limited_rate, "forwarding": of.forwarding.0,
            "forwarding_error": of.forwarding.1, "without_reader": of.without_reader.0,
            "without_reader_error": of.without_reader.1, "listener_adds": of.listener.0,
            "listener_adds_error": of.listener.1, "samplerd_adds": of.samplerd.0,
            "samplerd_adds_error": of.samplerd.1, "own_cpu": of.own,
            "samples_per_second": of.rate,
        })
    };
    all.iter().map(one).collect()
}

/// As Markdown.
pub(crate) fn markdown(all: &[Sampled]) -> String {
    let mut out = "|  | slowdown, 95 % | samples per CPU second | with the default limit | samples per CPU second | one that only forwards | nobody listens | a listener that does nothing adds | samplerd adds | samplerd's own CPU time | goal |\n\
                   | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for of in all {
        let _ = writeln!(
            out,
            "| {} | {} | {} |",
            of.workload.name(),
            of.cells().join(" | "),
            of.verdict()
        );
    }
    out
}
