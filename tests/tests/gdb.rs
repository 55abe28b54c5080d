//! Stacks of real programs, as distributed: the whole chain of return addresses of a sample equals
//! gdb's at the same stop.
//!
//! Every allocation is sampled. gdb stops at the first instruction of malloc by a hardware
//! breakpoint (before the probe at that place, return address intact). It records the time and its
//! own chain, and goes on. The sample of that call is the first one of the thread after that time.

use anyhow::{Context, Result, bail, ensure};
use sampler_tests::child::Child;
use sampler_tests::client::Client;
use sampler_tests::{Daemon, wait};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Stops for each program.
const STOPS: usize = 100;

/// Samples kept while gdb works. More samples would mean that nothing matches anyway.
const MAX_SAMPLES: usize = 1 << 20;

/// A code location: file and file offset.
type Place = (String, u64);

/// gdb's result at one stop: return addresses, leaf first.
struct Stop {
    time_ns: u64,
    tid: u64,
    chain: Vec<Place>,
}

/// One sample of the stream: leaf first.
struct Sample {
    time_ns: u64,
    tid: u64,
    frames: Vec<Place>,
    unwind: String,
}

#[test]
fn python3() -> Result<()> {
    let script = "import sys, json, re\n\
        print('waiting', flush=True)\n\
        sys.stdin.readline()\n\
        class A:\n    def __init__(self, n): self.x = [str(n)] * n\n\
        for i in range(4000):\n    \
            d = json.loads(json.dumps({'a': list(range(i % 50)), 'b': str(i) * 30}))\n    \
            s = sorted([A(i % 9) for _ in range(5)], key=lambda a: len(a.x))\n    \
            m = re.sub('([a-z]+)', lambda m: m.group(1).upper(), 'some words %d' % i)\n";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", script]).env("PYTHONMALLOC", "malloc");
    compare("python3", command, "go")
}

#[test]
fn sqlite3() -> Result<()> {
    let mut command = Command::new("/usr/bin/sqlite3");
    command.args(["-batch", ":memory:"]);
    let work = "create table t(a integer primary key, b text, c real); \
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) \
        insert into t select i, hex(randomblob(i % 40)), i * 1.5 from n; \
        create index x on t(b); \
        select count(*), max(length(u.b || t.b)) from t join t u on u.a = t.a * 2 where t.b > '3'; \
        select group_concat(b, '-') from (select substr(b, 1, 9) b from t order by c desc limit 500);";
    compare("sqlite3", command, work)
}

#[test]
fn perl() -> Result<()> {
    let script = "$| = 1; print \"waiting\\n\"; <STDIN>; my %h; \
        for my $i (1 .. 20000) { $h{\"key$i\"} = [map { $_ * 2 } 1 .. $i % 9]; \
        (my $s = \"word $i\" x 3) =~ s/(\\w+)/<$1>/g; $h{$s} = sprintf('%s-%d', $s, $i); } \
        my @k = sort { $a cmp $b } keys %h; print scalar(@k), \"\\n\";";
    let mut command = Command::new("/usr/bin/perl");
    command.args(["-e", script]);
    compare("perl", command, "go")
}

fn compare(name: &str, mut command: Command, work: &str) -> Result<()> {
    let mut program = Child::start(name, &mut command)?;
    if name == "sqlite3" {
        program.send("select 'waiting';")?;
    }
    ensure!(program.line()? == "waiting", "{name} does not wait");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/stops.py");
    let pid = program.pid().to_string();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-batch", "-nx", "-p", &pid, "-ex", &format!("source {script}")]);
    gdb.args(["-ex", &format!("python run({pid}, {STOPS})")]).stderr(std::process::Stdio::null());
    let mut gdb = Child::start("gdb (install it)", &mut gdb)?;
    while gdb.line()? != "attached" {}
    let arguments = ["--interval", "1", "--snapshot", "64KiB", "--native-frames"];
    let daemon = Daemon::start(&[program.pid()], &arguments)?;
    let samples = Stream::start(&daemon)?;
    gdb.send("go")?;
    program.send(work)?;
    let mut stops = Vec::new();
    loop {
        let line = gdb.line()?;
        if line == "killed" {
            break;
        }
        if let Some(stop) = line.strip_prefix("stop ") {
            stops.push(stop_of(&serde_json::from_str(stop)?)?);
        }
    }
    gdb.wait()?;
    ensure!(stops.len() == STOPS, "gdb stopped {} times only", stops.len());
    let last = stops.last().context("no stop")?.time_ns;
    let samples = samples.until(last)?;
    daemon.stop()?;

    let mut misses = Vec::new();
    for (number, stop) in stops.iter().enumerate() {
        let next_ns = stops.get(number + 1).map_or(u64::MAX, |next| next.time_ns);
        if let Some(miss) = miss(stop, next_ns, &samples) {
            misses.push(format!("stop {number}: {miss}"));
        }
    }
    println!("{name}: {} of {STOPS} chains are gdb's", STOPS - misses.len());
    ensure!(misses.is_empty(), "{name}: {} misses:\n{}", misses.len(), misses.join("\n"));
    Ok(())
}

/// The difference between gdb's chain and the sample's; `None` if they are equal. The sample of a
/// call is older than the next stop.
fn miss(stop: &Stop, next_ns: u64, samples: &[Sample]) -> Option<String> {
    let sample = samples
        .iter()
        .filter(|sample| sample.tid == stop.tid)
        .filter(|sample| (stop.time_ns..next_ns).contains(&sample.time_ns))
        .min_by_key(|sample| sample.time_ns);
    let Some(sample) = sample else { return Some("no sample".into()) };
    // The leaf is malloc itself. gdb is at malloc's first instruction; the sample has malloc's
    // name.
    let same_leaf = sample.frames.first().map(|frame| &frame.0) == stop.chain.first().map(|p| &p.0);
    let callers = |chain: &[Place]| chain.iter().skip(1).cloned().collect::<Vec<_>>();
    let (ours, gdbs) = (callers(&sample.frames), callers(&stop.chain));
    let same = |(ours, gdbs): (&Place, &Place)| ours.0 == gdbs.0 && is_call(ours.1, gdbs.1);
    if same_leaf && ours.len() == gdbs.len() && ours.iter().zip(&gdbs).all(same) {
        return None;
    }
    let at = ours.iter().zip(&gdbs).position(|pair| !same(pair));
    Some(format!(
        "{} frames ({}), gdb {}; first difference at {at:?}\n  ours {:x?}\n  gdb  {:x?}",
        ours.len(),
        sample.unwind,
        gdbs.len(),
        sample.frames,
        stop.chain
    ))
}

/// A frame's address is in the call instruction, one byte before its return address.
fn is_call(frame: u64, returns_to: u64) -> bool {
    frame == returns_to || frame + 1 == returns_to
}

fn stop_of(value: &Value) -> Result<Stop> {
    let chain = value["chain"].as_array().context("no chain")?;
    let place = |place: &Value| {
        let path = place[0].as_str().context("no path")?.to_string();
        Ok((path, place[1].as_u64().context("no offset")?))
    };
    Ok(Stop {
        time_ns: value["time_ns"].as_u64().context("no time")?,
        tid: value["tid"].as_u64().context("no tid")?,
        chain: chain.iter().map(place).collect::<Result<_>>()?,
    })
}

fn sample_of(value: &Value) -> Result<Sample> {
    // gdb's chains have no Python frames.
    let is_native =
        |of: &Result<Place>| !of.as_ref().is_ok_and(|place| place.0.starts_with("[python "));
    let frames = value["frames"].as_array().context("no frames")?;
    let place = |frame: &Value| {
        let path = frame["path"].as_str().context("no path")?.to_string();
        Ok((path, frame["file_offset"].as_u64().context("no offset")?))
    };
    Ok(Sample {
        time_ns: value["time_ns"].as_u64().context("no time")?,
        tid: value["tid"].as_u64().context("no tid")?,
        frames: frames.iter().map(place).filter(is_native).collect::<Result<_>>()?,
        unwind: value["unwind"].as_str().unwrap_or_default().to_string(),
    })
}

/// A stream of samples, collected in the background.
struct Stream {
    samples: Arc<Mutex<Vec<Sample>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Stream {
    /// Starts the stream. Returns once the daemon has accepted the request.
    fn start(daemon: &Daemon) -> Result<Stream> {
        const SERVICE: &str = "sampler.v1.Sampler";
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("start a runtime")?;
        let address = daemon.address.clone();
        let mut answers = runtime.block_on(async move {
            let mut client = Client::connect(&address).await?;
            client.learn(SERVICE).await?;
            client.stream(SERVICE, "StreamSamples", json!({})).await
        })?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&samples);
        runtime.spawn(async move {
            while let Ok(Some(value)) = answers.next().await {
                let (Ok(sample), Ok(mut samples)) = (sample_of(&value), collected.lock()) else {
                    return;
                };
                if samples.len() == MAX_SAMPLES {
                    return;
                }
                samples.push(sample);
            }
        });
        Ok(Stream { samples, _runtime: runtime })
    }

    /// All samples, once there is a sample after `time_ns`.
    fn until(self, time_ns: u64) -> Result<Vec<Sample>> {
        wait::until("the sample of the last stop", || {
            let Ok(samples) = self.samples.lock() else { bail!("the collector panicked") };
            Ok(samples.iter().any(|sample| sample.time_ns > time_ns).then_some(()))
        })?;
        let Ok(mut samples) = self.samples.lock() else { bail!("the collector panicked") };
        Ok(std::mem::take(&mut *samples))
    }
}
