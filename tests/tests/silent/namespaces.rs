//! samplerd in a pid namespace, where the kernel's process ids are not those of `/proc`; and files
//! that root cannot open.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::daemon::samplerd;
use sampler_tests::pid_namespace::{PidNamespace, child_of, innermost_pid};
use sampler_tests::windowed::{self, NEAR_CERTAIN_CONFIDENCE, WINDOWS_DEADLINE, windows};
use sampler_tests::{Daemon, Profile, Workload, build, wait};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every allocation is sampled, and has room in the ring however late the daemon reads.
const ALL: &[&str] = &["--interval", "1", "--ring", "64MiB"];

/// A workload in a namespace, and its pid there.
fn inside(namespace: &PidNamespace, source: &str, case: &[&str]) -> Result<(Workload, u32)> {
    let program = build::compile(source, &[])?;
    let workload = Workload::spawn(source, namespace.command(program).args(case))?;
    let pid = innermost_pid(child_of(workload.pid())?)?;
    Ok((workload, pid))
}

/// Objects and bytes of each process that `ps` lists, by its pid in samplerd's namespace. Checks
/// that none has ended.
fn listed(daemon: &Daemon) -> Result<BTreeMap<u64, (u64, u64)>> {
    let listed = daemon.json("ps")?;
    let processes = listed["processes"].as_array().context("no processes")?;
    let each = processes.iter().map(|process| {
        let number = |value: &serde_json::Value| value.as_u64().context("no number");
        let exact = &process["exact"];
        let seen = (number(&exact["alloc_objects"])?, number(&exact["alloc_space"])?);
        Ok((number(&process["pid"])?, seen))
    });
    each.collect()
}

/// Checks that the numbers of given processes are right, with own and with shared links.
fn given(processes: usize, arguments: &[&str]) -> Result<()> {
    let namespace = PidNamespace::start()?;
    let workloads: Vec<(Workload, u32)> = (0..processes)
        .map(|_| inside(&namespace, "edges.c", &["realloc"]))
        .collect::<Result<_>>()?;
    let pids: Vec<u32> = workloads.iter().map(|(_, pid)| *pid).collect();
    let daemon = Daemon::start_inside(&namespace, &pids, &[ALL, arguments].concat())?;
    for (mut workload, pid) in workloads {
        workload.go()?;
        let truth = workload.truth()?.total().alloc;
        let seen = listed(&daemon)?.get(&pid.into()).copied();
        ensure!(
            seen == Some((truth.objects, truth.bytes)),
            "{arguments:?}: {pid} has {seen:?}, not {truth:?}; {}",
            daemon.log()
        );
        let profile = daemon.profile("alloc", &["--pid", &pid.to_string()])?;
        let space = profile.totals.alloc_space.value;
        ensure!(space == truth.bytes as f64, "{arguments:?}: {space} bytes, not {truth:?}");
        ensure!(profile.stacks_of("main").next().is_some(), "no main in {}", profile.folded());
    }
    daemon.stop()
}

#[test]
fn a_process_with_its_own_links_is_counted_in_a_namespace() -> Result<()> {
    for engine in ["session", "multi", "perf"] {
        given(1, &["--probe-engine", engine])?;
    }
    Ok(())
}

#[test]
fn processes_with_shared_links_are_counted_in_a_namespace() -> Result<()> {
    given(5, &[])?;
    given(5, &["--probe-engine", "perf"])
}

/// All processes of the namespace, present or later, and no other process that maps the same files.
#[test]
fn every_process_of_the_namespace_is_counted() -> Result<()> {
    let namespace = PidNamespace::start()?;
    let mut stranger = Workload::edge(&["realloc"])?;
    let (mut early, early_pid) = inside(&namespace, "edges.c", &["realloc"])?;
    let daemon = Daemon::start_inside(&namespace, &[], &[&["--all"], ALL].concat())?;
    let (mut late, late_pid) = inside(&namespace, "edges.c", &["realloc"])?;
    stranger.go()?;
    let truth = stranger.truth()?.total().alloc;
    let truth = (truth.objects, truth.bytes);
    for (workload, pid) in [(&mut early, early_pid), (&mut late, late_pid)] {
        let before = listed(&daemon)?.get(&pid.into()).copied().unwrap_or_default();
        workload.go()?;
        workload.truth()?;
        let after = listed(&daemon)?.get(&pid.into()).copied().unwrap_or_default();
        let seen = (after.0 - before.0, after.1 - before.1);
        ensure!(seen == truth, "{pid}: {seen:?} is not {truth:?}; {}", daemon.log());
    }
    let of_workloads = daemon.json("ps")?;
    let of_workloads = of_workloads["processes"].as_array().context("no processes")?;
    let is_workload =
        |of: &&serde_json::Value| of["comm"].as_str().is_some_and(|of| of.starts_with("edges"));
    let of_workloads: Vec<_> = of_workloads.iter().filter(is_workload).collect();
    ensure!(of_workloads.len() == 2, "a stranger is among {of_workloads:?}");
    for process in of_workloads {
        ensure!(process["state"] == "running", "it runs: {process}");
    }
    daemon.stop()
}

/// Children of a process, from their first allocation. Their pids are those of their own namespace.
#[test]
fn a_tree_is_followed() -> Result<()> {
    let namespace = PidNamespace::start()?;
    let (mut workload, pid) = inside(&namespace, "tree.c", &["wait"])?;
    let daemon = Daemon::start_inside(&namespace, &[pid], &[&["--follow"], ALL].concat())?;
    workload.go()?;
    let mut truth: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    loop {
        let line = workload.child().line()?;
        if line == "end" {
            break;
        }
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let of = truth.entry(numbers[0]).or_default();
        *of = (of.0 + numbers[1], of.1 + numbers[2]);
    }
    let seen = listed(&daemon)?;
    ensure!(truth.len() == 9 && seen == truth, "{seen:?} is not {truth:?}; {}", daemon.log());
    daemon.stop()
}

#[test]
fn sampler_run_counts_a_program_in_a_namespace() -> Result<()> {
    // The ring has room for all records: a samplerd that gets no CPU does not raise the interval.
    const BLOCKS: &str = "500";
    let namespace = PidNamespace::start()?;
    let program = build::compile("tree.c", &[])?;
    let directory = tempfile::tempdir()?;
    for preload in [&[][..], &["--preload", "--max-samples-per-process", "unlimited"]] {
        let file = directory.path().join("profile");
        let mut command = namespace.command(build::program("sampler")?);
        for variable in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
            command.env_remove(variable);
        }
        command.arg("run").args(preload).args(["--interval", "1", "--confidence", "0.99999999"]);
        command.args(["--json", "-o"]).arg(&file);
        let finished = finish(command.arg("--").arg(&program).args(["leaf", BLOCKS]))?;
        let finished = finished.success("sampler run")?;
        let said = String::from_utf8(finished.stdout)?;
        let bytes = said.split_whitespace().nth(2).context("three numbers")?.parse::<f64>()?;
        let profile = Profile::parse(&fs::read(&file)?)?;
        let seen = profile.totals.alloc_space;
        // The program's start-up allocates as well. The library samples a burst at a larger
        // interval than requested, so its total is an estimate.
        let is_right = seen.low <= 1.2 * bytes + 100_000.0 && bytes <= seen.high;
        ensure!(is_right, "{preload:?}: {seen:?} of {bytes}: {}", finished.stderr);
        // Probes that sample every byte make the total exact.
        let is_exact = seen.low == seen.high;
        ensure!((is_exact || !preload.is_empty()) && seen.low > 0.0, "{preload:?}: {seen:?}");
    }
    Ok(())
}

/// Windows open and close for a process of the namespace.
#[test]
fn windows_open_for_a_process_of_the_namespace() -> Result<()> {
    let namespace = PidNamespace::start()?;
    let program = build::compile("budget.c", &[])?;
    let mut program = Child::start("budget", namespace.command(program).args(["steady", "600"]))?;
    ensure!(program.line()? == "ready", "no ready line");
    let pid = innermost_pid(child_of(program.pid())?)?;
    let daemon = Daemon::start_inside(&namespace, &[pid], &["--windows", "20%"])?;
    wait::until_deadline("windows that have seen something", WINDOWS_DEADLINE, || {
        let profile = windowed::profile(&daemon, NEAR_CERTAIN_CONFIDENCE)?;
        let seen = profile["totals"]["alloc_objects"]["value"].as_f64().unwrap_or(0.0);
        Ok((windows(&profile) > 0 && seen > 0.0).then_some(()))
    })
    .with_context(|| daemon.log())?;
    daemon.stop()
}

/// A process in a namespace below samplerd's.
#[test]
fn processes_of_a_nested_namespace_are_counted() -> Result<()> {
    let namespace = PidNamespace::start()?;
    let program = build::compile("edges.c", &[])?;
    let mut command = namespace.command("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(program).arg("realloc");
    // This process maps the libc, which is therefore probed before the other process starts.
    let (_early, _) = inside(&namespace, "edges.c", &["realloc"])?;
    let daemon = Daemon::start_inside(&namespace, &[], &[&["--all"], ALL].concat())?;
    let mut workload = Workload::spawn("edges.c", &mut command)?;
    workload.go()?;
    let truth = workload.truth()?.total().alloc;
    let seen = listed(&daemon)?;
    let has_truth = seen.values().any(|of| *of == (truth.objects, truth.bytes));
    ensure!(has_truth, "none of {seen:?} is {truth:?}; {}", daemon.log());
    daemon.stop()
}

/// A pid means another process in the `/proc` of another namespace.
#[test]
fn the_proc_of_another_namespace_is_refused() -> Result<()> {
    build::require_root()?;
    let namespace = PidNamespace::start()?;
    let mut command = namespace.command_with_our_proc(build::program("samplerd")?);
    let daemon = finish(command.args(["--all", "--listen", "unix:/nowhere/socket"]))?;
    let mut command = namespace.command_with_our_proc(build::program("sampler")?);
    let run = finish(command.args(["run", "--", "true"]))?;
    for refused in [daemon, run] {
        let said = &refused.stderr;
        ensure!(refused.code() == 1 && said.lines().count() == 1, "{}: {said}", refused.code());
        ensure!(said.contains("another pid namespace") && said.contains("--pid=host"), "{said}");
    }
    Ok(())
}

/// A FUSE mount of a user, as sshfs and AppImages make them. Only this user may open its files.
struct UserMount {
    directory: tempfile::TempDir,
}

impl UserMount {
    const USER: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

    /// Mounts a directory with this program.
    fn of(program: &Path) -> Result<UserMount> {
        let directory = tempfile::tempdir()?;
        for name in ["source", "mount"] {
            fs::create_dir(directory.path().join(name))?;
            chown(directory.path().join(name), Some(65534), Some(65534))?;
        }
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        fs::copy(program, directory.path().join("source/program"))?;
        let mount = UserMount { directory };
        // udev sets this mode.
        fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666)).context("/dev/fuse")?;
        let mut command = Command::new("setpriv");
        command.args(UserMount::USER).args(["bindfs", "--no-allow-other"]);
        command.args([mount.path("source"), mount.path("mount")]);
        finish(&mut command).context("NOT TESTED (apt-get install bindfs)")?.success("bindfs")?;
        Ok(mount)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the program as the mount's user.
    fn workload(&self, arguments: &[&str]) -> Result<Workload> {
        let mut command = Command::new("setpriv");
        command.args(UserMount::USER).arg(self.path("mount/program")).args(arguments);
        Workload::spawn("a program on a FUSE mount", &mut command)
    }
}

impl Drop for UserMount {
    fn drop(&mut self) {
        // The mount may have failed.
        let _ = Command::new("umount").arg("--lazy").arg(self.path("mount")).status();
    }
}

/// The program's libc is outside the mount. Its allocations are counted, and the executable is
/// reported as not readable.
#[test]
fn an_executable_that_root_cannot_open_is_blind() -> Result<()> {
    let mount = UserMount::of(&build::compile("edges.c", &[])?)?;
    for arguments in [&[][..], &["--follow"]] {
        let mut workload = mount.workload(&["realloc"])?;
        let arguments = [ALL, arguments].concat();
        let daemon = Daemon::start(&[workload.pid()], &arguments)?;
        workload.go()?;
        let truth = workload.truth()?.total().alloc;
        let profile = daemon.profile("alloc", &[])?;
        let seen = (profile.exact_objects, profile.exact_space);
        ensure!(seen == (truth.objects, truth.bytes), "{seen:?} is not {truth:?}");
        let blind_spots = daemon.json("ps")?["processes"][0]["blind"].to_string();
        is_named(&mount, &blind_spots)?;
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}

/// The only allocator is in the executable, which samplerd cannot open. So there is nothing to
/// probe.
#[test]
fn a_static_executable_that_root_cannot_open_is_refused() -> Result<()> {
    let mount = UserMount::of(&build::compile("edges.c", &["-static"])?)?;
    let workload = mount.workload(&["realloc"])?;
    let pid = workload.pid().to_string();
    let socket = format!("unix:{}", mount.path("socket").display());
    let refused = samplerd(&["--pid", &pid, "--listen", &socket])?;
    ensure!(refused.code() == 1, "{}: {}", refused.code(), refused.stderr);
    is_named(&mount, &refused.stderr)
}

/// Checks that a line names the file, the mount and a remedy.
fn is_named(mount: &UserMount, said: &str) -> Result<()> {
    let file = mount.path("mount/program").display().to_string();
    let point = format!("mount {}:", mount.path("mount").display());
    for part in [&file, &point, "allow_other"] {
        ensure!(said.contains(part), "{part:?} is not said: {said}");
    }
    ensure!(!said.contains("run as root"), "root is refused, and asked to be root: {said}");
    Ok(())
}
