//! The Debian package in an administrator's use: installed, run as a service, upgraded, removed.
//!
//! `cargo xtask package --test` builds the package and runs this test.

mod deb;
mod debian;

use anyhow::{Context as _, Result, ensure};
use debian::Debian;
use sampler_tests::child::{Child, finish};
use sampler_tests::pid_namespace::{child_of, innermost_pid};
use sampler_tests::{Profile, Workload, build, wait};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The file in which the administrator sets the service's options.
const OPTIONS: &str = "/etc/default/samplerd";
/// Samples every byte, so that the profile can be compared with the workload's own counts.
const EXACT: &str = "SAMPLERD_OPTIONS=\"--all --interval 1 --max-samples-per-second unlimited\"\n";

/// The additional settings that the service needs for `--inject`.
const INJECTS: &str = "[Service]
AmbientCapabilities=CAP_DAC_OVERRIDE
CapabilityBoundingSet=CAP_DAC_OVERRIDE
SystemCallFilter=ptrace
";

#[test]
#[ignore = "it takes a package and a Debian to install it in: cargo xtask package --test makes both"]
fn a_package_is_installed_used_upgraded_and_removed() -> Result<()> {
    build::require_root()?;
    let package = deb::built()?;
    let debian = Debian::boot()?;
    let before = debian.files()?;
    install(&debian, &package)?;
    library_and_injector_are_found(&debian)?;
    serve(&debian)?;
    service_injects(&debian)?;
    upgrade(&debian, &package)?;
    remove(&debian)?;
    let left: Vec<_> = debian.files()?.difference(&before).cloned().collect();
    // dpkg keeps a copy of its previous state.
    ensure!(left.iter().all(|path| path.starts_with("/var/lib/dpkg/status")), "left: {left:?}");
    Ok(())
}

#[test]
#[ignore = "it takes a package: cargo xtask package --test makes it"]
fn lintian_reports_no_warning() -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]).arg(deb::built()?);
    let finished = finish(&mut lintian)?;
    let said = String::from_utf8_lossy(&finished.stdout);
    ensure!(finished.status.success(), "{said}{}", finished.stderr);
    Ok(())
}

/// The package installs the programs and starts none: profiling costs the machine's programs CPU
/// time.
fn install(debian: &Debian, package: &Path) -> Result<()> {
    let package = debian.copy(package)?;
    debian.output(&["dpkg", "--install", &package])?;
    for program in ["samplerd", "sampler", "sampler-inject"] {
        let said = debian.output(&[program, "--version"])?;
        ensure!(said == format!("{program} {}", deb::VERSION), "{said}");
    }
    for page in ["man1/sampler-profile.1.gz", "man8/samplerd.8.gz"] {
        ensure!(debian.path(&format!("/usr/share/man/{page}")).is_file(), "no {page}");
    }
    for (question, answer) in [("is-active", "inactive\n"), ("is-enabled", "disabled\n")] {
        let said = debian.run(&["systemctl", question, "samplerd"])?.stdout;
        ensure!(said == answer.as_bytes(), "{question}: {}", String::from_utf8_lossy(&said));
    }
    Ok(())
}

/// The service profiles a program without being root.
fn serve(debian: &Debian) -> Result<()> {
    fs::write(debian.path(OPTIONS), EXACT).context("write the options")?;
    debian.output(&["systemctl", "enable", "--now", "samplerd"])?;
    until_served(debian)?;
    let main = property(debian, "MainPID")?;
    let user = debian.output(&["stat", "--format=%u", &format!("/proc/{main}")])?;
    ensure!(user != "0", "the service runs as root");
    ensure!(property(debian, "NRestarts")? == "0", "the service was started again");
    profiles(debian)
}

fn until_served(debian: &Debian) -> Result<()> {
    let answer = wait::until("an answer of the service", || {
        let answer = debian.run(&["sampler", "status"])?;
        Ok(answer.status.success().then_some(()))
    });
    answer.with_context(|| debian.output(&["journalctl", "-u", "samplerd"]).unwrap_or_default())
}

fn property(debian: &Debian, name: &str) -> Result<String> {
    debian.output(&["systemctl", "show", "samplerd", "--value", "--property", name])
}

/// A program in the Debian that counts its own allocations, and the program's pid there.
fn edges(debian: &Debian) -> Result<(Workload, String)> {
    let program = debian.copy(&build::compile("edges.c", &[])?)?;
    let mut command = debian.command(&program);
    let workload = Workload::spawn("edges.c", command.args(["keep", "1000"]))?;
    let pid = innermost_pid(child_of(workload.pid())?)?.to_string();
    Ok((workload, pid))
}

/// The service's profile of a program agrees with the program's own counts.
fn profiles(debian: &Debian) -> Result<()> {
    let (mut workload, pid) = edges(debian)?;
    workload.go()?;
    let truth = workload.truth()?.total();
    let answer =
        debian.output(&["sampler", "profile", "--kind", "live", "--pid", &pid, "--json"])?;
    let profile = Profile::parse(answer.as_bytes())?;
    let row = profile.row("many_kept");
    let seen = (row.alloc_space.sum, row.inuse_space.sum);
    let expected = (truth.alloc.bytes as f64, truth.live.bytes as f64);
    ensure!(seen == expected, "{seen:?} is not {expected:?}: {}", profile.folded());
    workload.exit()
}

/// `sampler` and `samplerd` find files that are not in their own directory.
fn library_and_injector_are_found(debian: &Debian) -> Result<()> {
    debian.output(&["sampler", "run", "--preload", "--", "/bin/true"])?;
    let (mut workload, pid) = edges(debian)?;
    let mut command = debian.command("samplerd");
    command.args(["--pid", &pid, "--inject", "--listen", "unix:/run/second.sock"]);
    let mut samplerd = Child::start("samplerd", command.arg("--until-stdin-closes"))?;
    let line = samplerd.line()?;
    ensure!(line.starts_with("ready "), "{line}");
    let maps = debian.output(&["cat", &format!("/proc/{pid}/maps")])?;
    ensure!(maps.contains("otel_memory-sampler"), "the sampler is not in: {maps}");
    samplerd.close_stdin();
    ensure!(samplerd.wait()?.success(), "samplerd --inject failed");
    workload.go()?;
    workload.truth()?;
    workload.exit()
}

/// With the capability and the system call that `docs/operations.md` names, the service injects
/// into programs.
fn service_injects(debian: &Debian) -> Result<()> {
    let directory = debian.path("/etc/systemd/system/samplerd.service.d");
    let (mut workload, pid) = edges(debian)?;
    let program = debian.output(&["readlink", &format!("/proc/{pid}/exe")])?;
    let options = format!("SAMPLERD_OPTIONS=\"--all --inject --inject-only exe:{program}\"\n");
    fs::write(debian.path(OPTIONS), options).context("write the options")?;
    fs::create_dir(&directory).context("make the drop-in's directory")?;
    fs::write(directory.join("inject.conf"), INJECTS).context("write the drop-in")?;
    restart(debian)?;
    workload.go()?;
    wait::until("the sampler in the program", || {
        let maps = debian.output(&["cat", &format!("/proc/{pid}/maps")])?;
        Ok(maps.contains("otel_memory-sampler").then_some(()))
    })?;
    fs::remove_dir_all(&directory).context("remove the drop-in")?;
    fs::write(debian.path(OPTIONS), EXACT).context("write the options")?;
    restart(debian)?;
    workload.truth()?;
    workload.exit()
}

fn restart(debian: &Debian) -> Result<()> {
    debian.output(&["systemctl", "daemon-reload"])?;
    debian.output(&["systemctl", "restart", "samplerd"])?;
    until_served(debian)
}

/// After an upgrade, a running service uses the new program and keeps the administrator's options.
fn upgrade(debian: &Debian, package: &Path) -> Result<()> {
    let first = property(debian, "MainPID")?;
    let directory = tempfile::tempdir().context("make a directory")?;
    let version = format!("{}+upgrade", deb::VERSION);
    let later = deb::upgrade(package, &version, "usr/bin/samplerd", directory.path())?;
    let later = debian.copy(&later)?;
    debian.output(&["dpkg", "--install", &later])?;
    until_served(debian)?;
    let second = property(debian, "MainPID")?;
    ensure!(second != first, "the service still runs the old program");
    let program = debian.output(&["readlink", &format!("/proc/{second}/exe")])?;
    ensure!(program == "/usr/bin/samplerd", "the service runs {program}");
    let bytes = fs::read(debian.path("/usr/bin/samplerd")).context("read the new program")?;
    ensure!(bytes.ends_with(b"upgraded"), "the program is the old one");
    ensure!(fs::read_to_string(debian.path(OPTIONS))? == EXACT, "{OPTIONS} has changed");
    profiles(debian)
}

/// A removal ends the service and keeps its options; a purge removes the options as well.
fn remove(debian: &Debian) -> Result<()> {
    debian.output(&["dpkg", "--remove", "sampler"])?;
    let processes = debian.output(&["sh", "-c", "cat /proc/[0-9]*/comm"])?;
    ensure!(!processes.contains("sampler"), "still there: {processes}");
    ensure!(debian.path(OPTIONS).is_file(), "{OPTIONS} is gone");
    debian.output(&["dpkg", "--purge", "sampler"])?;
    let runtime = debian.output(&["find", "/run", "/tmp", "-name", "*sampler*"])?;
    ensure!(runtime.is_empty(), "left: {runtime}");
    Ok(())
}
