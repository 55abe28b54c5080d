//! `/debug/pprof/…`, fetched by `go tool pprof`, and by clients that go away.

use super::{Served, ticking};
use anyhow::{Context, Result, anyhow, bail, ensure};
use sampler_tests::{Workload, http, wait};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `go tool pprof` on a URL of the daemon at this address.
fn go(daemon: SocketAddr, arguments: &[&str], path: &str) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(arguments)
        .arg(format!("http://{daemon}{path}"))
        // pprof keeps the profiles that it has fetched.
        .env("PPROF_TMPDIR", directory.path())
        .output()
        .context("run go (apt-get install golang-go)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go tool pprof {path}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn go_tool_pprof_fetches_profiles() -> Result<()> {
    let mut workload = Workload::edge(&["realloc"])?;
    let mut other = Workload::edge(&["realloc"])?;
    let served = Served::start(&[workload.pid(), other.pid()], &["--interval", "1"])?;
    let address = served.address;
    workload.go()?;
    let truth = workload.truth()?.total();
    let pid = workload.pid();
    let path = format!("/debug/pprof/heap?pid={pid}");
    let top = go(address, &["-top", "-unit=B"], &path)?;
    ensure!(top.contains("Type: inuse_space") && !top.contains("Duration: "), "{top}");
    ensure!(top.contains(&format!("of {}B total", truth.live.bytes)), "{truth:?}: {top}");
    ensure!(top.contains("realloc_moves") && !top.contains(" realloc\n"), "{top}");
    let program = fs::read_link(format!("/proc/{pid}/exe"))?;
    let program = program.file_name().and_then(|name| name.to_str()).context("no name")?;
    ensure!(top.lines().any(|line| line == format!("File: {program}")), "{program}: {top}");
    // The source of a function, with the bytes of its lines.
    let list = go(address, &["-list=^realloc_moves$", "-unit=B"], &path)?;
    let line = list.lines().find(|line| line.contains("realloc("));
    let line = line.with_context(|| format!("the line that allocates: {list}"))?;
    ensure!(line.contains("50000B"), "{line}");
    let top = go(address, &["-top", "-unit=B"], &format!("/debug/pprof/allocs?pid={pid}"))?;
    ensure!(top.contains("Type: alloc_space"), "{top}");
    ensure!(top.contains(&format!("of {}B total", truth.alloc.bytes)), "{truth:?}: {top}");
    let file = served.page(&path)?;
    ensure!(file.body.starts_with(&[0x1f, 0x8b]), "not gzipped");
    ensure!(file.header("content-type") == Some("application/octet-stream"), "{file:?}");
    workload.exit()?;
    other.go()?;
    other.truth()?;
    // A selection by name has both processes.
    let comm = served.daemon.json("ps")?["processes"][0]["comm"].as_str().map(str::to_owned);
    let path = format!("/debug/pprof/allocs?comm={}", comm.context("no comm")?);
    let top = go(address, &["-top", "-unit=B"], &path)?;
    ensure!(top.contains(&format!("of {}B total", 2 * truth.alloc.bytes)), "{truth:?}: {top}");
    other.exit()?;
    served.daemon.stop()
}

/// A difference has the allocations of its period. Nothing runs at its two ends: a call in progress
/// would be counted, and sampled only when it returns.
#[test]
fn the_seconds_parameter_gives_a_difference() -> Result<()> {
    let mut programs = (0..5).map(|_| Workload::edge(&["realloc"])).collect::<Result<Vec<_>>>()?;
    let pids: Vec<u32> = programs.iter().map(Workload::pid).collect();
    let served = Served::start(&pids, &["--interval", "1"])?;
    let address = served.address;
    let profiles = || {
        let labels = [("question", "profile")];
        served.metrics()?.value("sampler_answer_duration_seconds_count", &labels)
    };
    // These allocations came before, and are in no difference.
    programs[0].go()?;
    programs[0].truth()?;
    let (comments, truth) = thread::scope(|scope| {
        for program in &mut programs[1..] {
            let (start, before) = (Instant::now(), profiles()?);
            let path = "/debug/pprof/allocs?seconds=2";
            let difference = scope.spawn(move || go(address, &["-comments"], path));
            wait::until("the first profile", || Ok((profiles()? > before).then_some(())))?;
            program.go()?;
            let truth = program.truth()?.total();
            // Otherwise a program that waited for a CPU was too late, perhaps in part.
            let is_between = profiles()? == before + 1.0;
            let comments = difference.join().map_err(|_| anyhow!("go panicked"))??;
            ensure!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
            if is_between {
                return Ok((comments, truth));
            }
        }
        bail!("no program allocated within 2 seconds")
    })?;
    let exact = format!(
        "exact in the window: {} objects, {} bytes",
        truth.alloc.objects, truth.alloc.bytes
    );
    // Every allocation was sampled, and has its interval.
    let all = [
        ("alloc_objects", truth.alloc.objects, "objects"),
        ("alloc_space", truth.alloc.bytes, "bytes"),
        ("inuse_objects", truth.live.objects, "objects"),
        ("inuse_space", truth.live.bytes, "bytes"),
    ];
    let totals = all.map(|(kind, value, unit)| {
        format!("total {kind}: {value} {unit}, 95% interval {value} to {value}")
    });
    for line in [&[exact][..], &totals].concat() {
        ensure!(comments.lines().any(|of| of == line), "{line} is not in {comments}");
    }
    let top = go(address, &["-top"], "/debug/pprof/allocs?seconds=1")?;
    ensure!(top.contains("Duration: 1"), "{top}");
    served.daemon.stop()
}

/// A client that has gone frees its place for others, and the daemon ends as usual.
#[test]
fn a_disconnected_client_frees_its_place() -> Result<()> {
    let (_workload, served) = ticking()?;
    let request =
        format!("GET /debug/pprof/heap?seconds=600 HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    let (mut waiting, quick) = (Vec::new(), "/debug/pprof/heap");
    let answer = wait::until("all places taken", || {
        // A request is refused if it arrives while the quick request has the last place.
        waiting.push(http::begin(served.address, &request)?);
        let answer = http::get(served.address, quick)?;
        Ok((answer.status == 503).then_some(answer))
    })?;
    ensure!(answer.text()?.contains("(try again"), "{:?}", answer.text());
    ensure!(answer.header("retry-after").is_some(), "{answer:?}");
    let descriptors = || sockets(served.daemon.pid());
    let busy = descriptors()?;
    drop(waiting);
    wait::until("a free place", || {
        Ok((http::get(served.address, quick)?.status == 200).then_some(()))
    })?;
    wait::until("closed connections", || Ok((descriptors()? + 8 <= busy).then_some(())))?;
    // A waiting client does not delay the end.
    let _waiting = http::begin(served.address, &request)?;
    served.daemon.stop()
}

/// Open sockets of a process.
fn sockets(pid: u32) -> Result<usize> {
    let mut sockets = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that was closed meanwhile is skipped.
        let target = fs::read_link(entry?.path()).unwrap_or_default();
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(sockets)
}

/// Connections without a request take places, but not for long.
#[test]
fn silent_connections_are_closed() -> Result<()> {
    let (_workload, served) = ticking()?;
    let silent = (0..64).map(|_| http::begin(served.address, "GET /metrics HTTP/1.1\r\nHo"));
    let _silent = silent.collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    served.metrics()?;
    ensure!(start.elapsed() < wait::DEADLINE, "{:?}", start.elapsed());
    served.daemon.stop()
}
