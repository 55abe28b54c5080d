//! Commands that cannot work are refused: one clear message with a remedy, seven lines at the most,
//! exit code 1 (2 for usage), nothing left behind.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, Finished, finish};
use sampler_tests::daemon::{sampler, samplerd};
use sampler_tests::nobody::PublicCopy;
use sampler_tests::{Daemon, Workload, build};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Larger than any pid.
const NO_PID: &str = "4194999";

fn refused(what: &str, finished: &Finished, code: i32, says: &[&str]) -> Result<()> {
    let said = &finished.stderr;
    ensure!(finished.code() == code, "{what}: exit code {}, not {code}: {said}", finished.code());
    let lines = said.lines().count();
    ensure!((1..=7).contains(&lines), "{what}: {lines} lines: {said}");
    ensure!(!said.contains("panicked"), "{what}: {said}");
    ensure!(finished.stdout.is_empty(), "{what}: stdout is not empty");
    for text in says {
        ensure!(said.contains(text), "{what}: nothing on {text:?} in: {said}");
    }
    Ok(())
}

/// Checks that the daemon refuses, and leaves no socket behind.
fn daemon_refuses(what: &str, arguments: &[&str], code: i32, says: &[&str]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let finished = samplerd(&[arguments, &["--listen", &listen]].concat())?;
    refused(what, &finished, code, says)?;
    ensure!(!socket.exists(), "{what}: the socket is left behind");
    Ok(())
}

#[test]
fn unprofilable_processes_are_refused() -> Result<()> {
    build::require_root()?;
    daemon_refuses("unknown pid", &["--pid", NO_PID], 1, &[NO_PID])?;
    daemon_refuses("kernel thread", &["--pid", "2"], 1, &["kernel thread"])?;

    let program = build::compile("noalloc.c", &["-static", "-nostdlib", "-s"])?;
    let process = Child::start("noalloc", &mut Command::new(program))?;
    let pid = process.pid().to_string();
    daemon_refuses("no allocator", &["--pid", &pid], 1, &[&pid])
}

#[test]
fn invalid_arguments_are_refused() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let pid = workload.pid().to_string();
    for flags in [
        ["--interval", "0"],
        ["--interval", "-5"],
        ["--interval", "many"],
        ["--interval", "8GiB"],
        ["--unwind", "guess"],
        ["--snapshot", "lots"],
        ["--max-live", "0"],
        ["--probe-engine", "steam"],
        ["--listen", "carrier:pigeon"],
        ["--listen", "tcp:127.0.0.1"],
        ["--wings", "2"],
        ["--pid", "-1"],
        ["--pid", "self"],
    ] {
        let finished = samplerd(&[&["--pid", &pid], flags.as_slice()].concat())?;
        refused(&flags.join(" "), &finished, 2, &[])?;
    }
    refused("no pid", &samplerd(&[])?, 2, &["--pid"])?;
    let of_no_program = samplerd(&["--pid", "--inject"])?;
    refused("pidof without a pid", &of_no_program, 2, &["pidof", "--pid PID"])?;
    refused("a verb with a typo", &sampler(&["leak"])?, 2, &["'leaks'"])?;
    refused("a value with a typo", &sampler(&["profile", "--kind", "liev"])?, 2, &["'live'"])?;
    refused("an option with a typo", &samplerd(&["--injct"])?, 2, &["'--inject'"])?;
    for arguments in [
        ["profile", "--format", "origami"],
        ["profile", "--kind", "dead"],
        ["profile", "--confidence", "2"],
        ["profile", "--confidence", "0"],
        ["profile", "--top", "-3"],
        ["profile", "--pid", "x"],
        ["set", "--interval", "0"],
        ["set", "--interval", "8GiB"],
        ["fly", "--to", "moon"],
    ] {
        refused(&arguments.join(" "), &sampler(&arguments)?, 2, &[])?;
    }
    Ok(())
}

#[test]
fn missing_and_foreign_sockets_are_refused() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let pid = workload.pid().to_string();
    let directory = tempfile::tempdir()?;

    let nobody = format!("unix:{}", directory.path().join("nobody").display());
    for verb in ["status", "ps", "profile"] {
        refused(verb, &sampler(&["--connect", &nobody, verb])?, 1, &["nobody"])?;
    }
    let closed = sampler(&["--connect", "tcp:127.0.0.1:1", "status"])?;
    refused("closed port", &closed, 1, &["127.0.0.1:1"])?;

    // The daemon must not remove another program's file.
    let file = directory.path().join("precious");
    fs::write(&file, "data")?;
    let listen = format!("unix:{}", file.display());
    refused("a file", &samplerd(&["--pid", &pid, "--listen", &listen])?, 1, &["precious"])?;
    ensure!(fs::read_to_string(&file)? == "data", "the file was touched");

    let listen = format!("unix:{}", directory.path().join("no/where/socket").display());
    refused("no directory", &samplerd(&["--pid", &pid, "--listen", &listen])?, 1, &["no/where"])?;

    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let listen = format!("tcp:{}", taken.local_addr()?);
    refused("port in use", &samplerd(&["--pid", &pid, "--listen", &listen])?, 1, &["127.0.0.1"])
}

#[test]
fn invalid_requests_to_a_daemon_are_refused() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    let output = "/proc/no/such/file";
    let finished = daemon.sampler(&["profile", "-o", output])?;
    refused("unwritable output", &finished, 1, &[output])?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().to_str().context("path is not UTF-8")?;
    refused("output is a directory", &daemon.sampler(&["profile", "-o", path])?, 1, &[path])?;
    refused("pid", &daemon.sampler(&["profile", "--pid", NO_PID])?, 1, &[NO_PID])?;
    let set = daemon.sampler(&["set", "--pid", NO_PID, "--interval", "1MiB"])?;
    refused("set pid", &set, 1, &[NO_PID])?;
    daemon.stop()
}

#[test]
fn a_daemon_without_privileges_is_refused() -> Result<()> {
    build::require_root()?;
    let workload = Workload::edge(&["odd"])?;
    let pid = workload.pid().to_string();
    // Another user can read the copy.
    let copy = PublicCopy::of("samplerd")?;
    let run = |flags: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(flags).arg(&copy.program).args([
            "--pid",
            &pid,
            "--listen",
            "unix:/tmp/x/socket",
        ]);
        finish(&mut command)
    };
    let nobody = run(&["--reuid=65534", "--regid=65534", "--clear-groups"])?;
    refused("not root", &nobody, 1, &["CAP_BPF", "root"])?;
    // Root by name, without a single capability: nothing of BPF works.
    let powerless = run(&["--bounding-set=-all", "--inh-caps=-all"])?;
    refused("no capabilities", &powerless, 1, &[])
}

/// Only the owner of the socket may ask.
#[test]
fn the_socket_is_private() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    let mode = fs::metadata(daemon.socket())?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o}");
    daemon.stop()
}
