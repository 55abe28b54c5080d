//! Debian's own debuginfod server, in a network namespace, with the debug files of Debian's Python
//! and of a stripped program: the first screen of a profile has no addresses.

use super::{Stripped, build_id};
use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::{Daemon, build, pythons, wait};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Lines of a small terminal.
const SCREEN: usize = 24;

/// Starts the loopback device of the namespace and the program in its arguments, waits until a
/// file is served, and says so. Arguments: the file's path on the server, the program, …
const SERVE: &str = r#"
import fcntl, os, socket, struct, subprocess, sys, time, urllib.request
UP = 0x49
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh14s", b"lo", UP, b""))
server = subprocess.Popen(sys.argv[2:], stdout=2)
while server.poll() is None:
    try:
        urllib.request.urlopen("http://127.0.0.1:8002" + sys.argv[1]).close()
        print("serves", flush=True)
        sys.stdin.read()
        server.kill()
    except OSError:
        time.sleep(0.1)
"#;

/// Allocates through much of the interpreter, without an end.
const WORK: &str = "
import json, re
kept = []
print('ready', flush=True)
while True:
    text = json.dumps({str(n): [n] * 50 for n in range(200)})
    parts = re.sub('[0-9]', 'xx', text).split(',')
    kept = [sorted(json.loads(text)), ' '.join(parts), bytes(2000), set(parts), dict.fromkeys(parts)]
";

/// A server of the debug files in some folders. It ends when it is dropped.
struct Server(Child);

impl Server {
    fn start(folders: &[&Path], build_id: &str) -> Result<Server> {
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--kill-child", "--fork"]);
        command.args(["/usr/bin/python3", "-c", SERVE]);
        command.arg(format!("/buildid/{build_id}/debuginfo"));
        command.args(["debuginfod", "-p", "8002", "-t", "0", "-d", ":memory:", "-F"]).args(folders);
        let mut server = Child::start("debuginfod", &mut command)?;
        let line = server.line_within(Duration::from_secs(120))?;
        ensure!(line == "serves", "debuginfod: {line}");
        Ok(Server(server))
    }

    /// A command that runs in the server's network.
    fn command(&self, program: &Path) -> Result<Command> {
        let inside = sampler_tests::pid_namespace::child_of(self.0.pid())?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &inside.to_string(), "--net", "--"]).arg(program);
        Ok(command)
    }
}

#[test]
fn with_debians_server_the_first_screen_has_no_hex() -> Result<()> {
    let mut stripped = Stripped::start()?;
    fs::write(stripped.directory.path().join("beside.debug"), &stripped.debug_file)?;
    let Some(python) = pythons::unpacked("3.11") else {
        eprintln!("NOTICE: NOT TESTED: Debian's Python 3.11 (cargo xtask test unpacks it)");
        return Ok(());
    };
    let files = python.file("usr/lib/debug").context("Python's debug files")?;
    let id = build_id(&python.program)?;
    let server = Server::start(&[&files, stripped.directory.path()], &id)?;
    let mut interpreter = Child::start("python", python.command()?.args(["-c", WORK]))?;
    ensure!(interpreter.line()? == "ready", "the interpreter does not start");
    stripped.workload.go()?;
    for pid in [interpreter.pid(), stripped.workload.pid()] {
        let mut command = server.command(&build::program("samplerd")?)?;
        command.env("DEBUGINFOD_CACHE_PATH", stripped.cache());
        let arguments = ["--interval", "4KiB", "--debuginfod", "http://127.0.0.1:8002"];
        let daemon = Daemon::start_by(command, &[pid], &arguments)?;
        let mut last = String::new();
        let named = wait::until("a screen without hex", || {
            let answer = daemon.sampler(&["profile", "--kind", "alloc"])?.success("profile")?;
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            last = text.lines().take(SCREEN).collect::<Vec<_>>().join("\n");
            let has_rows = last.lines().count() > 10;
            Ok((has_rows && !last.contains("0x")).then_some(()))
        });
        named.with_context(|| format!("{last}\nlog: {}", daemon.log()))?;
        eprintln!("{last}");
        daemon.stop()?;
    }
    Ok(())
}
