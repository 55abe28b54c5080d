//! `samplerd --all`: processes that were there before, that come later, that are in a container,
//! that die; and other daemons.

use anyhow::{Context, Result, ensure};
use sampler_tests::breakpoints::{sites, standing};
use sampler_tests::{Daemon, Truth, Workload, build, wait};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The interval is large enough for a busy machine, and small enough for the workload. The ring has
/// room for all samples, however late the daemon reads them.
const ALL: &[&str] = &["--all", "--interval", "16KiB", "--ring", "256MiB"];

fn everyone() -> Result<Daemon> {
    Daemon::start(&[], ALL)
}

/// The entry of a process in `ps`, if the process has allocated.
fn listed(daemon: &Daemon, which: impl Fn(&Value) -> bool) -> Result<Option<Value>> {
    let listed = daemon.json("ps")?;
    let processes = listed["processes"].as_array().context("no processes")?;
    Ok(processes.iter().find(|process| which(process)).cloned())
}

/// Exact allocations and bytes of a process so far.
fn exact(daemon: &Daemon, pid: u32) -> Result<(u64, u64)> {
    let Some(found) = listed(daemon, |process| process["pid"] == pid)? else { return Ok((0, 0)) };
    let number = |key: &str| found["exact"][key].as_u64().with_context(|| format!("{found}"));
    Ok((number("alloc_objects")?, number("alloc_space")?))
}

/// A workload that waits at its mark.
fn workload() -> Result<Workload> {
    Workload::start("truth.c", &["41", "1", "16384"])
}

/// Checks that the daemon counts what the workload reports, and that its functions have their
/// names.
fn sees(daemon: &Daemon, workload: &mut Workload, pid: u32) -> Result<Truth> {
    let before = exact(daemon, pid)?;
    workload.go()?;
    let truth = workload.truth()?;
    let total = truth.total().alloc;
    let after = exact(daemon, pid)?;
    let seen = (after.0 - before.0, after.1 - before.1);
    ensure!(seen == (total.objects, total.bytes), "saw {seen:?}, not {total:?}\n{}", daemon.log());
    let pid = pid.to_string();
    let profile = daemon.profile("live", &["--pid", &pid, "--confidence", "0.999999999"])?;
    let (held, live) = (profile.totals.inuse_space, truth.total().live.bytes as f64);
    ensure!(held.low <= live && live <= held.high, "{live} is not in {held:?}");
    for function in truth.functions.iter().filter(|function| function.live.bytes > 1 << 20) {
        let stack = profile.stacks_of(&function.name).next();
        let stack = stack.with_context(|| format!("{}: {}", function.name, profile.folded()))?;
        let whole = stack.contains("main") || stack.contains("worker");
        ensure!(whole, "{:?}", stack.frames);
    }
    Ok(truth)
}

#[test]
fn programs_started_before_and_after_the_daemon_are_counted() -> Result<()> {
    let mut early = workload()?;
    let daemon = everyone()?;
    let mut late = workload()?;
    for workload in [&mut late, &mut early] {
        let pid = workload.pid();
        sees(&daemon, workload, pid)?;
        workload.exit()?;
    }
    daemon.stop()
}

/// The daemon starts between two phases of one program.
#[test]
fn a_running_program_is_counted_from_the_attach_on() -> Result<()> {
    let mut workload = Workload::start("windows.c", &[])?;
    workload.go()?;
    let first = workload.truth()?.total().alloc;
    let daemon = everyone()?;
    workload.go()?;
    let both = workload.truth()?.total().alloc;
    let seen = exact(&daemon, workload.pid())?;
    let second = (both.objects - first.objects, both.bytes - first.bytes);
    ensure!(seen == second, "saw {seen:?}, not {second:?}");
    workload.child().signal(9)?;
    workload.wait()?;
    // The profile of an exited process stays, and nothing of it is held.
    let pid = workload.pid();
    wait::until("the exit", || {
        let found = listed(&daemon, |process| process["pid"] == pid)?.context("it is forgotten")?;
        Ok((found["state"] == "exited").then_some(()))
    })?;
    let profile = daemon.profile("live", &["--pid", &pid.to_string()])?;
    ensure!(profile.totals.inuse_space.value == 0.0, "{}", profile.folded());
    ensure!(profile.exact_space == second.1, "{}", profile.exact_space);
    daemon.stop()
}

#[test]
fn two_daemons_count_the_same() -> Result<()> {
    let mut workload = workload()?;
    let pid = workload.pid();
    let others = everyone()?;
    let daemon = everyone()?;
    let truth = sees(&daemon, &mut workload, pid)?.total().alloc;
    ensure!(exact(&others, pid)? == (truth.objects, truth.bytes), "{:?}", exact(&others, pid)?);
    daemon.stop()?;
    ensure!(exact(&others, pid)? == (truth.objects, truth.bytes), "{:?}", exact(&others, pid)?);
    workload.exit()?;
    others.stop()
}

#[test]
fn a_killed_daemon_leaves_no_breakpoint() -> Result<()> {
    let mut workload = workload()?;
    let pid = workload.pid();
    let mut killed = everyone()?;
    let sites = sites(&killed.status()?)?;
    ensure!(standing(pid, &sites)? > 0, "no breakpoint of {} is seen", sites.len());
    killed.child().signal(9)?;
    killed.child().wait()?;
    wait::until("the last breakpoint's end", || Ok((standing(pid, &sites)? == 0).then_some(())))?;
    let daemon = everyone()?;
    sees(&daemon, &mut workload, pid)?;
    workload.exit()?;
    daemon.stop()
}

/// Libraries that a program of the workload needs, with their paths.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("run ldd")?;
    let text = String::from_utf8(output.stdout)?;
    let paths = text.split_ascii_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(str::to_owned).collect())
}

/// A directory with all files that a workload needs. The workload is at the path of another program
/// of the host.
fn image(directory: &Path) -> Result<()> {
    let program = build::compile("truth.c", &[])?;
    let into = |path: &str| directory.join(path.trim_start_matches('/'));
    for path in libraries(&program)? {
        std::fs::create_dir_all(into(&path).parent().context("no parent")?)?;
        std::fs::copy(&path, into(&path)).with_context(|| format!("copy {path}"))?;
    }
    std::fs::create_dir_all(into("/usr/bin"))?;
    std::fs::copy(&program, into("/usr/bin/sleep")).context("copy the workload")?;
    Ok(())
}

/// A process in namespaces of its own, with a root that `mount` makes at `root`. Returns its pid in
/// our namespace, too.
fn contained(mount: &str, root: &Path, seed: &str) -> Result<(Workload, u32)> {
    let root = root.display();
    let script = format!("{mount} && exec chroot {root} /usr/bin/sleep {seed} 1 16384");
    let mut command = Command::new("unshare");
    let namespaces = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"];
    command.args(namespaces).args(["sh", "-c", &script]);
    let workload = Workload::spawn("a container", &mut command)?;
    // The process is a child of `unshare`.
    let children = format!("/proc/{pid}/task/{pid}/children", pid = workload.pid());
    let children = std::fs::read_to_string(children).context("read the children")?;
    let pid = children.trim().parse().with_context(|| format!("one child: {children:?}"))?;
    Ok((workload, pid))
}

/// Waits for probes. Allocations before the daemon has found the container's libc are not counted.
fn wait_for_probes(daemon: &Daemon, root: &Path) -> Result<()> {
    let root = root.to_str().context("path is not UTF-8")?;
    wait::until("probes in the container's libc", || {
        let status = daemon.status()?;
        let mut probes = status["probes"].as_array().context("no probes")?.iter();
        let there = probes.any(|probe| probe["path"].as_str().is_some_and(|of| of.contains(root)));
        Ok(there.then_some(()))
    })
}

/// A container with its own libc at the usual path, and another program at the path of one of the
/// host's programs.
#[test]
fn a_program_in_a_container_is_counted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let [kept, root] = ["kept", "root"].map(|name| directory.path().join(name));
    image(&kept)?;
    std::fs::create_dir(&root)?;
    let daemon = everyone()?;
    let (from, to) = (kept.display(), root.display());
    let mount = format!("mount -t tmpfs none {to} && cp -a {from}/. {to}");
    let (mut workload, pid) = contained(&mount, &root, "42")?;
    wait_for_probes(&daemon, &root)?;
    sees(&daemon, &mut workload, pid)?;
    let inside = listed(&daemon, |process| process["pid"] == pid)?.context("not in ps")?;
    ensure!(inside["comm"] == "sleep", "{inside}");
    workload.exit()?;
    daemon.stop()
}

/// Containers of one image: their roots are overlays of one layer, whose libc gets its probes once.
#[test]
fn containers_with_a_common_layer_are_probed_once() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let [layer, root] = ["layer", "root"].map(|name| directory.path().join(name));
    image(&layer)?;
    std::fs::create_dir(&root)?;
    let (from, to) = (layer.display(), root.display());
    let mount = format!(
        "mount -t tmpfs none {to} && mkdir {to}/upper {to}/work {to}/all && \
         mount -t overlay overlay -olowerdir={from},upperdir={to}/upper,workdir={to}/work {to}/all"
    );
    let all = root.join("all");
    let mut containers = [contained(&mount, &all, "43")?, contained(&mount, &all, "44")?];
    // One container copies the files of the lower layer up to a layer of its own.
    let copied = format!("{mount} && for l in {to}/all/lib/*/*; do touch $l; done");
    let own = contained(&copied, &all, "45")?;
    let daemon = everyone()?;
    wait_for_probes(&daemon, &all)?;
    for (workload, pid) in containers.iter_mut().chain([&mut { own }]) {
        sees(&daemon, workload, *pid)?;
        workload.exit()?;
    }
    daemon.stop()
}
