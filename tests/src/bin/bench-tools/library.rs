//! The library that samples inside a program (`sampler run --preload`): what it costs while samplerd listens and follows frees, beside what a library
//! costs that only forwards malloc and free, what this one costs while nobody listens, and what somebody adds to that who listens and does nothing: two traps for
//! a sample and its end, which every listener of `otel_memory` causes.
//!
//! A few percent are less than what a machine drifts by within a minute: programs with and without it take turns, as in [`crate::windows`]. Nor are two
//! processes of a program equally fast, by where things lie in their memory: each is started some times, laid out at random. A fixed layout
//! ([`Layout::Fixed`]) would not make them alike, since a library and its variable move what lies beside them: all pairs would only have the same luck.
//! Who listens comes and goes in one process, so that what they add is known better than what the library costs.

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

/// Most that it may slow a program down by.
const SLOWDOWN: f64 = 1.02;
/// Pairs of processes of a program.
const PAIRS: u32 = 8;
/// Student's quantile of 97.5 % by the normal one, of the mean of so many.
const STUDENT: f64 = 2.365 / 1.96;

/// A program with the library.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    workload: Workload,
    /// CPU time of a round by that of a round without, with its standard error.
    slowdown: (f64, f64),
    /// The same as samplerd starts by itself: it takes no more than some samples a second of a process.
    limited: (f64, f64),
    /// The same of a library that does nothing but forward.
    forwarding: (f64, f64),
    /// The same of this library while nobody listens.
    without_reader: (f64, f64),
    /// What empty programs at its probes add to that, of the program's CPU time.
    listener: (f64, f64),
    /// What samplerd adds to it.
    samplerd: (f64, f64),
    /// CPU time of samplerd, by the program's.
    own: f64,
    /// Samples in a second of its CPU time.
    rate: f64,
    /// The same as samplerd starts by itself.
    limited_rate: f64,
}

impl Sampled {
    fn met(&self) -> &'static str {
        // Pairs of malloc and free and nothing else have their goal in `bench preload`.
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
    /// At 512 KiB throughout.
    Samplerd,
    /// As it starts by itself.
    Limited,
}

impl Listener {
    const ALL: [Listener; 4] =
        [Listener::Nobody, Listener::Empty, Listener::Samplerd, Listener::Limited];
}

/// Runs every workload for so many seconds of CPU time with the library, once. What fails is printed and left out.
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
    // As samplerd starts by itself, where the tests' one has no limits. A process that takes turns with another runs for a half of a second, and gets a half of the samples.
    let half = (PRELOADED_PER_SECOND / 2).to_string();
    let limits = ["--max-samples-per-second", "25000", "--max-samples-per-process", &half];
    let limited = [Ours::Preload.options(), &limits].concat();
    for _ in 0..PAIRS {
        {
            let mut pair = Pair::start(workload, each_s, Layout::Random, &forwards, None, scratch)?;
            forwarding.push(pair.run(each_s, random)?.slowdown().0);
        }
        let mut pair = Pair::start(workload, each_s, Layout::Random, &sampling, None, scratch)?;
        let mut listeners = Listener::ALL;
        random.shuffle(&mut listeners);
        for listener in listeners {
            if pair.is_once() && listener != listeners[0] {
                // Its round was its last.
                pair = Pair::start(workload, each_s, Layout::Random, &sampling, None, scratch)?;
            }
            pair.attached = match listener {
                Listener::Nobody => Attached::Nothing,
                Listener::Empty => listen(&empty, pair.pid())?,
                Listener::Samplerd => ours(pair.pid(), Ours::Preload.options())?,
                Listener::Limited => ours(pair.pid(), &limited)?,
            };
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

/// `program` at all probes of the library in a process.
fn listen(program: &ComparisonProgram, pid: u32) -> Result<Attached> {
    let path = sampler_tests::preload::library()?;
    let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
    let usdt = Usdt::read(&file).with_context(|| format!("read {}", path.display()))?;
    let probes = usdt.probes.iter().map(|probe| (probe.offset, probe.semaphore.unwrap_or(0)));
    let probes: Vec<(u64, u64)> = probes.collect();
    ensure!(!probes.is_empty(), "{} has no probes", path.display());
    Ok(Attached::Links(vec![program.attach_usdts(&file, pid, &probes)?]))
}

/// The mean, and an error of it of which 1.96 make 95 %.
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
            of.met()
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
    let mut out = "|  | slowdown, 95 % | samples a second | with the default limit | samples a second | one that only forwards | nobody listens | a listener that does nothing adds | samplerd adds | samplerd's own CPU time | goal |\n\
                   | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for of in all {
        let _ =
            writeln!(out, "| {} | {} | {} |", of.workload.name(), of.cells().join(" | "), of.met());
    }
    out
}
