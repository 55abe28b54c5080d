//! `cargo xtask demo`: from a fresh machine to the live profile of a running program.

mod scratch;
mod workload;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use self::scratch::{Running, Scratch, Watchdog, wait};
use self::workload::Workload;
use crate::workspace::Workspace;
use crate::{ebpf, packages, preload, step};

/// Mean bytes between samples. It is smaller than the default, to show much after a few seconds.
const INTERVAL: &str = "256KiB";
const READY_DEADLINE: Duration = Duration::from_secs(30);
const LEAKS_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// Number of lines of the daemon's log that an error shows.
const LOG_LINES: usize = 6;

/// What a person may type next.
const NEXT: &str = "\
Now your own program, in the same way:
  target/release/samplerd --pid PID --inject --web 127.0.0.1:8080
  target/release/sampler leaks                 which code holds more and more
  target/release/sampler profile --kind live   which code holds memory now
  target/release/sampler top                   the same, live
docs/guide.md goes on from here.";

/// Sets up, builds, starts a program, profiles it, and stops everything.
///
/// # Errors
/// If something does not build, or if the daemon or the client fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    packages::require_root("the demonstration attaches probes", "demo")?;
    packages::ensure(&packages::BUILD)?;
    ebpf::build(workspace, false, false)?;
    step::run("build", workspace.cargo().args(["build", "--release", "--bins"]))?;
    preload::build(workspace)?;

    let workload = Workload::choose();
    let (what, child) = workload.start(workspace)?;
    let mut program = Running::new("the program", child);
    eprintln!("==> a service that leaks, pid {}: {what}", program.child.id());
    let scratch = Scratch::create()?;
    let mut daemon = Daemon::start(workspace, program.child.id(), scratch.path())?;
    let watchdog = Watchdog::start(daemon.process.child.id(), scratch.path())?;
    let result = show(workspace, &mut daemon, &mut program, workload.leaks());
    let result = result.map_err(|error| anyhow!("{error:#}\n{}", daemon.log()));
    let stopped = daemon.process.terminate(STOP_DEADLINE);
    drop(program);
    drop(scratch);
    watchdog.dismiss()?;
    result?;
    let status = stopped?;
    if !status.success() {
        bail!("samplerd ended with {status} after SIGTERM");
    }
    eprintln!("==> stopped samplerd, which took its sampler out, and the service");
    eprintln!("{NEXT}");
    Ok(())
}

/// Waits until all leaks are known, then shows them, and draws what is held.
fn show(
    workspace: &Workspace,
    daemon: &mut Daemon,
    program: &mut Running,
    leaks: &[&str],
) -> Result<()> {
    let address = daemon.wait_until_ready()?;
    eprintln!("==> attached; waiting until samplerd is sure of {}", leaks.join(" and "));
    let client = Client { program: release(workspace, "sampler"), address };
    wait("the leaks are known", LEAKS_DEADLINE, || {
        if let Some(status) = program.ended()? {
            bail!("the program ended early with {status}");
        }
        client.knows(leaks).map(|knows| knows.then_some(()))
    })?;
    client.print(&["leaks", "--top", "2"])?;
    client.print(&["profile", "--kind", "live", "--top", "8"])?;
    let picture = workspace.target.join("demo.svg");
    let path = picture.to_string_lossy();
    client.print(&["flamegraph", "--kind", "live", "-o", &path])?;
    eprintln!("==> open {path} in a browser");
    Ok(())
}

fn release(workspace: &Workspace, program: &str) -> PathBuf {
    workspace.target.join("release").join(program)
}

/// The demonstration's own samplerd.
struct Daemon {
    process: Running,
    log: PathBuf,
    lines: Receiver<String>,
}

impl Daemon {
    fn start(workspace: &Workspace, pid: u32, scratch: &Path) -> Result<Self> {
        let log = scratch.join("log");
        let listen = format!("unix:{}", scratch.join("socket").display());
        let mut command = Command::new(release(workspace, "samplerd"));
        let pid = pid.to_string();
        let mut arguments = vec!["--pid", &pid, "--interval", INTERVAL, "--listen", &listen];
        if can_inject() {
            arguments.insert(2, "--inject");
        } else {
            eprintln!("==> this kernel is older than 6.10: uprobes instead of --inject");
        }
        eprintln!("==> samplerd {}", arguments.join(" "));
        command.args(arguments);
        let errors = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("start samplerd")?;
        let lines = lines(&mut child);
        Ok(Self { process: Running::new("samplerd", child), log, lines })
    }

    /// Waits for samplerd's line `ready ADDRESS`, and returns the address.
    fn wait_until_ready(&mut self) -> Result<String> {
        wait("samplerd is ready", READY_DEADLINE, || match self.lines.try_recv() {
            Ok(line) => match line.strip_prefix("ready ") {
                Some(address) => Ok(Some(address.to_owned())),
                None => bail!("samplerd wrote {line:?} instead of its address"),
            },
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("samplerd ended before it was ready"),
        })
    }

    /// The end of samplerd's log, for an error.
    fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        format!("samplerd's log ends with:\n  {}", last.join("\n  "))
    }
}

/// Whether the kernel has what `--inject` needs: Linux 6.10.
fn can_inject() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(10))
}

/// Receives a child's output line by line, without blocking the reader.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// The command line client, connected to the demonstration's daemon.
struct Client {
    program: PathBuf,
    address: String,
}

impl Client {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--connect", &self.address]).args(arguments);
        command
    }

    /// Prints a command and its answer.
    fn print(&self, arguments: &[&str]) -> Result<()> {
        eprintln!("==> sampler {}", arguments.join(" "));
        let status = self.command(arguments).status().context("start sampler")?;
        if !status.success() {
            bail!("sampler {} ended with {status}", arguments[0]);
        }
        Ok(())
    }

    /// Whether each of these functions is in a stack that grows by more than chance.
    fn knows(&self, functions: &[&str]) -> Result<bool> {
        let leaks: Value =
            serde_json::from_str(&step::output(&mut self.command(&["leaks", "--json"]))?)
                .context("parse the answer of sampler leaks --json")?;
        let stacks = leaks["stacks"].as_array().context("the answer has no stacks")?;
        let growing = || stacks.iter().filter(|stack| stack["growing"] == true);
        let has = |stack: &Value, function: &str| {
            let mut frames = stack["frames"].as_array().into_iter().flatten();
            frames.any(|frame| frame["function"] == function)
        };
        Ok(functions.iter().all(|function| growing().any(|stack| has(stack, function))))
    }
}
