//! `cargo xtask bench export`: CPU time of samplerd and bytes of a push, by destination and by the
//! number of stacks.
//!
//! A program holds blocks from so many stacks and does nothing more. Each push has what is held: a
//! row a stack. The CPU time is that of a samplerd that exports less that of one that does not,
//! both over the same time. In each round every case is measured once, in random order.

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use sampler_tests::child::Child;
use sampler_tests::collector::Collector;
use sampler_tests::progress::Progress;
use sampler_tests::spread::Spread;
use sampler_tests::usage::processor_seconds;
use sampler_tests::{Daemon, build, machine, wait};
use std::process::Command;
use std::time::{Duration, Instant};

/// Numbers of stacks.
const STACKS: [u32; 2] = [600, 10_000];
/// Calls between main and malloc.
const DEPTH: u32 = 25;
/// Requests before the measurement.
const WARM_UP: u64 = 4;
/// Blocks of each stack a second, on average, and seconds. Hardly a stack has no block, even if the
/// machine is busy.
const BLOCKS: (u32, u32) = (10, 4);

/// Measures what a push costs.
#[derive(Parser)]
#[command(name = "bench export")]
struct Args {
    /// Rounds; each measures every case once, in random order
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each case, with a push each second
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
}

/// A destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// Nothing is exported.
    Nothing,
    OtlpHttp,
    OtlpGrpc,
    Pyroscope,
    ClickHouse,
    Folder,
}

const PATHS: [Path; 6] = [
    Path::Nothing,
    Path::OtlpHttp,
    Path::OtlpGrpc,
    Path::Pyroscope,
    Path::ClickHouse,
    Path::Folder,
];

impl Path {
    fn name(self) -> &'static str {
        match self {
            Path::Nothing => "nothing",
            Path::OtlpHttp => "otlp+http",
            Path::OtlpGrpc => "otlp+grpc, before gzip",
            Path::Pyroscope => "pyroscope+http",
            Path::ClickHouse => "clickhouse+http",
            Path::Folder => "parquet",
        }
    }
}

/// What a case took.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// CPU seconds of samplerd in each second.
    processor_share: f64,
    /// Pushes that were sent. Each is one request, or one window of tables.
    pushes: u64,
    /// Bytes of all of them.
    bytes: u64,
}

/// A program that holds blocks from different stacks.
fn holding(stacks: u32) -> Result<Child> {
    let numbers = [stacks * BLOCKS.0, DEPTH, 1, stacks, BLOCKS.1].map(|of| of.to_string());
    let mut command = Command::new(build::compile_bench("stacks.c")?);
    let mut child = Child::start("stacks", command.args(numbers).arg("held"))?;
    ensure!(child.line()? == "waiting", "stacks.c does not wait");
    Ok(child)
}

/// A number of the only destination.
fn number(daemon: &Daemon, key: &str) -> Result<u64> {
    let status = daemon.status()?;
    status["exports"][0][key].as_u64().with_context(|| format!("no {key} in {status}"))
}

fn measure(path: Path, stacks: u32, seconds: u64) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let collector = match path {
        Path::OtlpGrpc => Collector::start_grpc()?,
        _ => Collector::start()?,
    };
    let address = collector.address;
    let url = match path {
        Path::Nothing => String::new(),
        Path::OtlpHttp | Path::OtlpGrpc => collector.url(),
        Path::Pyroscope => collector.pyroscope_url(),
        Path::ClickHouse => format!("clickhouse+http://{address}/x"),
        Path::Folder => format!("parquet:{}", folder.path().display()),
    };
    let mut program = holding(stacks)?;
    let export = ["--export", url.as_str(), "--export-every", "1s"];
    let export = if path == Path::Nothing { &[][..] } else { &export };
    let limits = ["--interval", "1", "--ring", "512MiB", "--max-samples-per-second", "unlimited"];
    let daemon = Daemon::start(&[program.pid()], &[&limits[..], export].concat())?;
    program.send("go")?;
    program.line()?;
    let found = daemon.profile("live", &[])?.stacks.len();
    ensure!(found as u32 > stacks - stacks / 50, "{found} of {stacks} stacks");
    let is_exporting = path != Path::Nothing;
    if is_exporting {
        // By then names and dictionaries have been sent.
        let before = number(&daemon, "sent")?;
        wait::until("some pushes", || {
            Ok((number(&daemon, "sent")? >= before + WARM_UP).then_some(()))
        })?;
    }
    let sent = || match is_exporting {
        true => Ok((number(&daemon, "sent")?, number(&daemon, "sent_bytes")?)),
        false => anyhow::Ok((0, 0)),
    };
    let (before, used_before) = (sent()?, processor_seconds(daemon.pid())?);
    let start = Instant::now();
    // The length of the measurement, not a condition.
    std::thread::sleep(Duration::from_secs(seconds));
    let used = processor_seconds(daemon.pid())? - used_before;
    let (pushes, bytes) = sent()?;
    let processor_share = used / start.elapsed().as_secs_f64();
    daemon.stop()?;
    ensure!(!is_exporting || pushes > before.0, "{}: nothing was sent", path.name());
    Ok(Measured { processor_share, pushes: pushes - before.0, bytes: bytes - before.1 })
}

/// Prints a row of the table.
fn print(path: Path, stacks: u32, seconds: u64, measured: &[Measured], nothing: &[Measured]) {
    let more = measured.iter().zip(nothing).map(|(of, nothing)| {
        let used = (of.processor_share - nothing.processor_share) * seconds as f64;
        1000.0 * used / of.pushes as f64
    });
    let Spread { median, low, high, .. } = Spread::of(more);
    let bytes = Spread::of(measured.iter().map(|of| of.bytes as f64 / of.pushes as f64)).median;
    let of_stack = bytes / f64::from(stacks);
    println!(
        "| `{}` | {stacks} | {median:.1} [{low:.1}, {high:.1}] | {:.1} | {of_stack:.0} |",
        path.name(),
        bytes / 1024.0
    );
}

fn main() -> Result<()> {
    let args = Args::parse();
    build::require_root()?;
    let machine = machine::describe()?;
    let cases: Vec<(Path, u32)> =
        STACKS.iter().flat_map(|stacks| PATHS.map(|path| (path, *stacks))).collect();
    let mut measured: Vec<Vec<Measured>> = vec![Vec::new(); cases.len()];
    let progress = Progress::of("cases", args.rounds as usize * cases.len());
    for _ in 0..args.rounds {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        fastrand::shuffle(&mut order);
        for index in order {
            let (path, stacks) = cases[index];
            measured[index].push(measure(path, stacks, args.seconds)?);
            progress.done();
        }
    }
    drop(progress);
    println!("{}\n{} rounds of {} s\n", machine.line(), args.rounds, args.seconds);
    println!("| destination | stacks | CPU ms a push [quartiles] | KiB a push | bytes a stack |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (index, (path, stacks)) in cases.iter().enumerate() {
        let nothing = cases.iter().position(|of| *of == (Path::Nothing, *stacks));
        if let Some(nothing) = nothing.filter(|nothing| *nothing != index) {
            print(*path, *stacks, args.seconds, &measured[index], &measured[nothing]);
        }
    }
    Ok(())
}
