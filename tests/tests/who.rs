//! Processes are selected and summed by what they have in common. Excluded processes are not
//! probed, and blind spots are reported.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::{Daemon, Truth, Workload, build, wait};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A container id as docker writes it.
const CONTAINER: &str = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e";

/// Copies of the truth workload under names of the test's own.
struct Programs(tempfile::TempDir);

impl Programs {
    fn new() -> Result<Programs> {
        build::require_root()?;
        Ok(Programs(tempfile::tempdir()?))
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.path().join(name);
        if !path.exists() {
            fs::copy(build::compile("truth.c", &[])?, &path)?;
        }
        Ok(path)
    }

    fn start(&self, name: &str, seed: &str) -> Result<Workload> {
        Workload::start_program(&self.path(name)?, &[seed, "1", "32768"])
    }
}

fn bytes(truth: &Truth) -> u64 {
    truth.total().alloc.bytes
}

fn run(workload: &mut Workload) -> Result<u64> {
    workload.go()?;
    Ok(bytes(&workload.truth()?))
}

/// The entry of a list whose `key` has this value.
fn find<'a>(list: &'a Value, key: &str, value: &str) -> Result<&'a Value> {
    let mut entries = list.as_array().into_iter().flatten();
    entries.find(|of| of[key] == value).with_context(|| format!("no {key} {value} in {list}"))
}

fn ps(daemon: &Daemon, arguments: &[&str]) -> Result<Value> {
    let finished = daemon.sampler(&[&["ps", "--json"], arguments].concat())?.success("ps")?;
    Ok(serde_json::from_slice(&finished.stdout)?)
}

fn sum_of_samples(of: &Value) -> Result<f64> {
    let sum = of["totals"]["alloc_space"]["moments"]["sum"].as_f64();
    sum.with_context(|| format!("no sum in {of}"))
}

/// The text profile has each path of two processes of one program once, with the sum of both.
fn paths_are_named_once(daemon: &Daemon) -> Result<()> {
    let arguments =
        ["profile", "--kind", "alloc", "--comm", "who-alpha", "--top", "1000", "--stacks"];
    let text = daemon.sampler(&arguments)?.success("profile")?.stdout;
    let text = String::from_utf8(text)?;
    let stacks: Vec<&str> = text.split("\n\n").filter(|of| of.contains("allocated (")).collect();
    ensure!(stacks.iter().any(|of| of.contains(", 2 processes\n")), "{text}");
    let mut paths: Vec<&str> =
        stacks.iter().filter_map(|of| Some(of.split_once('\n')?.1)).collect();
    let all = paths.len();
    paths.sort_unstable();
    paths.dedup();
    ensure!(paths.len() == all, "{all} stacks of {} paths: {text}", paths.len());
    Ok(())
}

#[test]
fn processes_are_selected_and_summed() -> Result<()> {
    let programs = Programs::new()?;
    let mut all = [
        programs.start("who-alpha", "3001")?,
        programs.start("who-alpha", "3002")?,
        programs.start("who-beta", "3003")?,
    ];
    let pids: Vec<u32> = all.iter().map(Workload::pid).collect();
    let daemon = Daemon::start(&pids, &["--interval", "32KiB"])?;
    let truth = all.iter_mut().map(run).collect::<Result<Vec<u64>>>()?;
    let (alpha, sum) = (truth[0] + truth[1], truth.iter().sum::<u64>());

    let exe = programs.path("who-alpha")?.display().to_string();
    for (arguments, bytes) in [
        (&["--comm", "who-alpha"][..], alpha),
        (&["--comm", "who-al*"], alpha),
        (&["--exe", "who-alpha"], alpha),
        (&["--exe", &exe], alpha),
        (&["--comm", "who-beta", "--comm", "who-alpha"], sum),
        (&["--comm", "who-alpha", "--pid", &pids[0].to_string()], truth[0]),
        (&["--comm", "who-?eta", "--exe", "who-b*"], truth[2]),
    ] {
        let profile = daemon.profile("alloc", arguments)?;
        let exact = profile.exact_space;
        ensure!(exact == bytes, "{arguments:?}: {exact} is not {bytes}");
        let watched = [&["watch", "--count", "1", "--json"], arguments].concat();
        let watched = daemon.sampler(&watched)?.success("watch")?;
        let watched: Value = serde_json::from_slice(&watched.stdout)?;
        ensure!(watched["exact"]["alloc_space"] == bytes, "watch {arguments:?}");
        daemon.sampler(&[&["lifetimes"], arguments].concat())?.success("lifetimes")?;
    }
    paths_are_named_once(&daemon)?;
    for (arguments, words) in [
        (
            &["--comm", "who-gamma"][..],
            "comm:who-gamma: no profiled process is that (see: sampler ps)",
        ),
        (&["--comm", "who-alpha", "--exe", "who-beta"], "comm:who-alpha exe:who-beta"),
    ] {
        for verb in ["profile", "ps", "lifetimes"] {
            let refused = daemon.sampler(&[&[verb], arguments].concat())?;
            ensure!(refused.code() == 1 && refused.stderr.contains(words), "{}", refused.stderr);
            ensure!(refused.stderr.lines().count() == 1, "{}", refused.stderr);
        }
    }

    let listed = ps(&daemon, &["--comm", "who-alpha"])?;
    let listed = listed["processes"].as_array().context("processes")?;
    let groups = ps(&daemon, &["--by", "comm"])?;
    let group = find(&groups["groups"], "key", "who-alpha")?;
    ensure!(listed.len() == 2 && group["processes"] == 2 && group["running"] == 2, "{group}");
    ensure!(group["exact"]["alloc_space"] == alpha, "{group} is not {alpha}");
    let each = listed.iter().map(sum_of_samples).collect::<Result<Vec<f64>>>()?;
    let (each, together) = (each.iter().sum::<f64>(), sum_of_samples(group)?);
    ensure!((each - together).abs() <= 1e-9 * each, "{each} is not {together}");
    let interval = &group["totals"]["alloc_space"];
    let ends = [&interval["low"], &interval["high"]].map(|end| end.as_f64().unwrap_or(f64::NAN));
    ensure!(ends[0] < together && together < ends[1], "{interval}");
    for process in listed {
        let memory = &process["memory"];
        let [rss, heap] = ["rss_bytes", "heap_bytes"].map(|key| memory[key].as_u64().unwrap_or(0));
        ensure!(rss > 1 << 20 && heap > 1 << 20, "{memory}");
        let started = process["started_unix_ns"].as_u64().context("started")?;
        let attached = process["attached_unix_ns"].as_u64().context("attached")?;
        ensure!(started < attached && attached - started < 60_000_000_000, "{started} {attached}");
    }
    for by in ["pid", "exe", "cgroup", "container"] {
        let groups = ps(&daemon, &["--by", by])?;
        let groups = groups["groups"].as_array().context("groups")?;
        let exact = groups.iter().filter_map(|of| of["exact"]["alloc_space"].as_u64());
        ensure!(exact.sum::<u64>() == sum, "by {by}: {groups:?} is not {sum}");
    }
    let live = daemon.sampler(&["profile", "--kind", "live"])?.success("profile")?;
    let live = String::from_utf8(live.stdout)?;
    let live = live.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(live.contains(" of heap mappings of the 3 processes that run, RSS "), "{live}");
    ensure!(live.contains("glibc's blocks are 1."), "{live}");

    all.iter_mut().try_for_each(Workload::exit)?;
    wait::until("the ends", || {
        let groups = ps(&daemon, &["--by", "comm"])?;
        Ok(groups["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|of| of["running"] == 0)
            .then_some(()))
    })?;
    let text = String::from_utf8(daemon.sampler(&["ps"])?.success("ps")?.stdout)?;
    ensure!(text.contains("exited: 3 processes, by command"), "{text}");
    ensure!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    daemon.stop()
}

/// A control group of version 2. Dropping the value removes the group, once its processes are gone.
struct Group {
    path: PathBuf,
    /// Name of the group in `/proc/PID/cgroup`.
    name: String,
}

impl Group {
    fn new(name: &str) -> Result<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"));
        let mount = mount.context("no cgroup2 file system is mounted: NOT TESTED (mount one)")?;
        let path = Path::new(mount[1]).join(name);
        fs::create_dir_all(&path).with_context(|| {
            format!("make {}: NOT TESTED (needs a cgroup2 that can be written)", path.display())
        })?;
        Ok(Group { path, name: format!("/{name}") })
    }

    fn take(&self, pid: u32) -> Result<()> {
        let path = self.path.join("cgroup.procs");
        fs::write(&path, pid.to_string()).with_context(|| format!("write {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is busy until its last process is reaped. The test has waited for that end
        // before.
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn processes_are_grouped_by_cgroup_and_container() -> Result<()> {
    let programs = Programs::new()?;
    let own = std::process::id();
    let slice = Group::new(&format!("sampler-who-{own}"))?;
    let scope = Group::new(&format!("sampler-who-{own}/docker-{CONTAINER}.scope"))?;
    {
        let mut inside = programs.start("who-inside", "3011")?;
        let mut beside = programs.start("who-beside", "3012")?;
        let mut outside = programs.start("who-outside", "3013")?;
        scope.take(inside.pid())?;
        slice.take(beside.pid())?;
        let pids = [inside.pid(), beside.pid(), outside.pid()];
        let daemon = Daemon::start(&pids, &["--interval", "32KiB"])?;
        let [a, b, c] = [run(&mut inside)?, run(&mut beside)?, run(&mut outside)?];
        for (group, bytes) in [
            (slice.name.as_str(), a + b),
            (scope.name.as_str(), a),
            (&CONTAINER[..12], a),
            (CONTAINER, a),
            ("/", a + b + c),
        ] {
            let exact = daemon.profile("alloc", &["--cgroup", group])?.exact_space;
            ensure!(exact == bytes, "--cgroup {group}: {exact} is not {bytes}");
        }
        let groups = ps(&daemon, &["--by", "container"])?;
        let container = find(&groups["groups"], "key", CONTAINER)?;
        ensure!(container["exact"]["alloc_space"] == a, "{container}");
        inside.exit()?;
        // The group of a process stays known after its end.
        wait::until("its end", || {
            let listed = ps(&daemon, &["--comm", "who-inside"])?;
            Ok((listed["processes"][0]["state"] == "exited").then_some(()))
        })?;
        let gone = &ps(&daemon, &["--comm", "who-inside"])?["processes"][0];
        ensure!(gone["cgroup"] == scope.name && gone["container"] == CONTAINER, "{gone}");
        [beside, outside].iter_mut().try_for_each(Workload::exit)?;
        daemon.stop()?;
    }
    drop(scope);
    drop(slice);
    Ok(())
}

#[test]
fn excluded_processes_are_left_alone() -> Result<()> {
    let programs = Programs::new()?;
    let mut seen = programs.start("who-seen", "3021")?;
    let mut early = programs.start("who-spared", "3022")?;
    let mut by_pid = programs.start("who-bypid", "3023")?;
    let pid = format!("pid:{}", by_pid.pid());
    let arguments =
        ["--all", "--interval", "32KiB", "--exclude", "comm:who-spar*", "--exclude", &pid];
    let daemon = Daemon::start(&[], &arguments)?;
    let bytes = run(&mut seen)?;
    run(&mut early)?;
    run(&mut by_pid)?;
    // The process allocates at once. The daemon excludes it only after reading its name.
    let mut late = programs.start("who-spared", "3024")?;
    run(&mut late)?;
    let exact = daemon.profile("alloc", &["--comm", "who-seen"])?.exact_space;
    ensure!(exact == bytes, "{exact} is not {bytes}");
    wait::until("the late one to be turned away", || {
        let status = daemon.status()?;
        let spared = find(&status["excluded"], "criterion", "comm:who-spar*")?;
        Ok((spared["processes"] == 2).then_some(()))
    })?;
    let listed = ps(&daemon, &[])?;
    let listed = listed["processes"].as_array().context("processes")?;
    for workload in [&early, &by_pid, &late] {
        ensure!(
            listed.iter().all(|of| of["pid"] != workload.pid()),
            "{} is listed",
            workload.pid()
        );
    }
    ensure!(listed.iter().all(|of| of["pid"] != 1 && of["pid"] != daemon.pid()), "defaults");
    let status = daemon.status()?;
    let calls = status["excluded_calls"].as_u64().context("excluded_calls")?;
    // Both processes made far more calls than this bound.
    ensure!(calls > 500_000, "{calls} calls of excluded processes");
    find(&status["excluded"], "criterion", "pid:1")?;
    let text = String::from_utf8(daemon.sampler(&["status"])?.success("status")?.stdout)?;
    // The test ignores line breaks.
    let words: Vec<&str> = text.split_whitespace().collect();
    ensure!(words.join(" ").contains("paid the trap of a shared link"), "{text}");
    [seen, early, by_pid, late].iter_mut().try_for_each(Workload::exit)?;
    daemon.stop()
}

#[test]
fn blind_processes_are_reported() -> Result<()> {
    build::require_root()?;
    let bare = ["-static", "-nostdlib"];
    let stripped = build::compile("noalloc.c", &[&bare[..], &["-s"]].concat())?;
    // The program is compiled by hand: the libraries that every other workload links do not exist
    // for 32 bits.
    let directory = tempfile::tempdir()?;
    let narrow = directory.path().join("noalloc32");
    let mut compiler = Command::new("cc");
    compiler.args(["-m32", "-O1", "-fno-pie", "-no-pie", "-static", "-nostdlib"]);
    compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/noalloc32.c"));
    finish(compiler.arg("-o").arg(&narrow))?.success("cc -m32")?;
    let gofmt = Command::new("go").args(["env", "GOROOT"]).output().context("run go")?;
    let gofmt = Path::new(String::from_utf8(gofmt.stdout)?.trim()).join("bin/gofmt");
    let python = ["-c", "input()"];
    // Each process waits for its input.
    let processes = [
        (
            "static and stripped, its malloc cannot be found",
            Child::start("static", &mut Command::new(stripped))?,
        ),
        ("a 32-bit process", Child::start("32-bit", &mut Command::new(narrow))?),
        ("a Go program", Child::start("gofmt", &mut Command::new(gofmt))?),
        (
            "Python's objects up to 512 bytes",
            Child::start("python3", Command::new("python3").args(python))?,
        ),
    ];
    let daemon = Daemon::start(&[], &["--all"])?;
    for (why, process) in &processes {
        let mut last = Value::Null;
        let found = wait::until(why, || {
            last = daemon.status()?["coverage"].take();
            let mut reasons = last.as_array().into_iter().flatten();
            let is_it = |of: &&Value| {
                let pids = of["pids"].as_array().into_iter().flatten();
                of["why"].as_str().is_some_and(|of| of.starts_with(why))
                    && pids.into_iter().any(|pid| *pid == process.pid())
            };
            Ok(reasons.find(is_it).map(|_| ()))
        });
        found.with_context(|| format!("pid {} in {last}", process.pid()))?;
    }
    let text = String::from_utf8(daemon.sampler(&["status"])?.success("status")?.stdout)?;
    ensure!(text.contains("a 32-bit process: only 64-bit"), "{text}");
    ensure!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    daemon.stop()
}

#[test]
fn exclusions_do_not_apply_to_named_processes() -> Result<()> {
    let refused = sampler_tests::daemon::samplerd(&["--pid", "1", "--exclude", "comm:x"])?;
    ensure!(refused.code() == 2 && refused.stderr.contains("add --all"), "{}", refused.stderr);
    for (which, words) in
        [("x", "has no kind"), ("user:x", "user is no kind"), ("pid:x", "no process id")]
    {
        let refused = sampler_tests::daemon::samplerd(&["--all", "--exclude", which])?;
        ensure!(refused.code() == 2 && refused.stderr.contains(words), "{}", refused.stderr);
        ensure!(refused.stderr.lines().count() <= 6, "{}", refused.stderr);
    }
    Ok(())
}
