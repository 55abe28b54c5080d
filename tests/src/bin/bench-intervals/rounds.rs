//! Measures one program under every setting, in rounds. In each round, every setting has one
//! *block*: a fixed amount of the program's work.

use anyhow::{Context, Result, ensure};
use sampler_common::sampling::Strategy;
use sampler_tests::child::Child;
use sampler_tests::progress::Progress;
use sampler_tests::spread::Spread;
use sampler_tests::{Daemon, daemon};
use std::path::Path;
use std::process::Command;

/// Room for live samples: at the smallest interval every block is a sample.
const MAX_LIVE: &str = "1048576";
/// Rounds of the program's work that are not measured after a change of the setting. By then,
/// strategies that compute their rates have done so.
const WARM_UP: u32 = 2;

/// How the program is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The strategy.
    pub(crate) strategy: Strategy,
    /// Mean bytes between samples.
    pub(crate) interval_bytes: u64,
}

/// What was measured in a block, one setting in one round.
pub(crate) struct Block {
    /// CPU time of the block divided by that of a block without probes.
    pub(crate) slowdown: f64,
    /// CPU time of the block, seconds.
    pub(crate) time_s: f64,
    /// Samples, lost ones included.
    pub(crate) samples: f64,
    /// Samples whose record found no room.
    pub(crate) lost: f64,
    /// Allocations.
    pub(crate) objects: f64,
    /// Bytes allocated.
    pub(crate) bytes: f64,
}

/// A count per second of the program's CPU time, over all blocks. At large intervals most blocks
/// have no sample.
pub(crate) fn per_second(blocks: &[Block], figure: impl Fn(&Block) -> f64) -> f64 {
    blocks.iter().map(figure).sum::<f64>() / blocks.iter().map(|block| block.time_s).sum::<f64>()
}

/// All measurements.
pub(crate) struct Measured {
    /// Settings with their rounds.
    pub(crate) settings: Vec<(Setting, Vec<Block>)>,
    /// CPU time of the block without probes after each round, divided by that of the block before
    /// the round: the drift of the machine's speed.
    pub(crate) drift: Spread,
    /// CPU seconds of a block without probes.
    pub(crate) unprobed_s: Spread,
}

/// The program.
struct Program(Child);

impl Program {
    fn start() -> Result<Program> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/blocks.py");
        let installed = Path::new("/usr/bin/python3");
        let python = if installed.exists() { installed } else { Path::new("python3") };
        let mut command = Command::new(python);
        let mut child = Child::start("python3", command.arg(script).env("PYTHONMALLOC", "malloc"))?;
        ensure!(child.line()? == "running", "python3 does not start");
        Ok(Program(child))
    }

    /// CPU seconds of a block.
    fn block(&mut self, rounds: u32) -> Result<f64> {
        self.0.send(&rounds.to_string())?;
        let line = self.0.line()?;
        let time: f64 = line.parse().with_context(|| format!("the program says {line:?}"))?;
        Ok(time / 1e9)
    }
}

/// Counters of samplerd for the program.
struct Counters {
    samples: f64,
    lost: f64,
    objects: f64,
    bytes: f64,
}

fn counters(samplerd: &Daemon) -> Result<Counters> {
    let status = samplerd.status()?;
    let processes = samplerd.json("ps")?;
    let exact = |what: &str| {
        let value = processes["processes"][0]["exact"][what].as_f64();
        value.with_context(|| format!("ps has no exact.{what}: {processes}"))
    };
    let outcome = |name: &str| daemon::outcome(&status, name) as f64;
    let lost = outcome("ring_full");
    Ok(Counters {
        samples: outcome("sampled") + lost,
        lost,
        objects: exact("alloc_objects")?,
        bytes: exact("alloc_space")?,
    })
}

/// Measures `settings`.
pub(crate) fn run(settings: &[Setting], rounds: u32, block: u32) -> Result<Measured> {
    let mut program = Program::start()?;
    let mut measured: Vec<(Setting, Vec<Block>)> =
        settings.iter().map(|setting| (*setting, Vec::new())).collect();
    let (mut drift, mut unprobed) = (Vec::new(), Vec::new());
    let mut order: Vec<usize> = (0..settings.len()).collect();
    program.block(block)?;
    let progress = Progress::of("rounds", rounds as usize);
    for _ in 0..rounds {
        let before = program.block(block)?;
        let samplerd = Daemon::start(&[program.0.pid()], &["--max-live", MAX_LIVE])?;
        fastrand::shuffle(&mut order);
        let mut times = Vec::new();
        for &index in &order {
            times.push((index, under(&samplerd, &mut program, settings[index], block)?));
        }
        samplerd.stop()?;
        let after = program.block(block)?;
        let base = (before + after) / 2.0;
        for (index, of) in times {
            measured[index].1.push(Block { slowdown: of.time_s / base, ..of });
        }
        drift.push(after / before);
        unprobed.extend([before, after]);
        progress.done();
    }
    Ok(Measured { settings: measured, drift: Spread::of(drift), unprobed_s: Spread::of(unprobed) })
}

/// Measures a block under a setting, not yet compared with a block without probes.
fn under(samplerd: &Daemon, program: &mut Program, setting: Setting, block: u32) -> Result<Block> {
    let (interval, strategy) = (setting.interval_bytes.to_string(), setting.strategy.name());
    samplerd
        .sampler(&["set", "--interval", &interval, "--strategy", strategy])?
        .success("sampler set")?;
    program.block(WARM_UP)?;
    let before = counters(samplerd)?;
    let time_s = program.block(block)?;
    let after = counters(samplerd)?;
    Ok(Block {
        slowdown: f64::NAN,
        time_s,
        samples: after.samples - before.samples,
        lost: after.lost - before.lost,
        objects: after.objects - before.objects,
        bytes: after.bytes - before.bytes,
    })
}
