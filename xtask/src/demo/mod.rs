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
use crate::{ebpf, packages, step};

/// Mean bytes between samples. It is far smaller than the default, to show much after a few
/// seconds.
const INTERVAL: &str = "64KiB";
/// Number of samples that gives useful confidence intervals.
const SAMPLES_ENOUGH: u64 = 5_000;
const READY_DEADLINE: Duration = Duration::from_secs(30);
const SAMPLES_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(20);
/// Number of lines of the daemon's log that an error shows.
const LOG_LINES: usize = 6;

/// Sets up, builds, starts a program, profiles it, and stops everything.
///
/// # Errors
/// If something does not build, or if the daemon or the client fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    packages::require_root("the demonstration attaches probes", "demo")?;
    packages::ensure(&packages::BUILD)?;
    ebpf::build(workspace, false, false)?;
    step::run("build", workspace.cargo().args(["build", "--release", "--bins"]))?;

    let (what, child) = Workload::choose().start(workspace)?;
    let mut program = Running::new("the program", child);
    eprintln!("==> a program that grows, pid {}: {what}", program.child.id());
    let scratch = Scratch::create()?;
    let mut daemon = Daemon::start(workspace, program.child.id(), scratch.path())?;
    let watchdog = Watchdog::start(daemon.process.child.id(), scratch.path())?;
    let result = show(workspace, &mut daemon, &mut program);
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
    eprintln!("==> stopped the daemon and the program");
    Ok(())
}

/// Waits for enough samples, then shows and writes the profile.
fn show(workspace: &Workspace, daemon: &mut Daemon, program: &mut Running) -> Result<()> {
    let address = daemon.wait_until_ready()?;
    eprintln!("==> attached; waiting for {SAMPLES_ENOUGH} samples");
    let client = Client { program: release(workspace, "sampler"), address };
    wait(&format!("{SAMPLES_ENOUGH} samples"), SAMPLES_DEADLINE, || {
        if let Some(status) = program.ended()? {
            bail!("the program ended early with {status}");
        }
        Ok((client.samples()? >= SAMPLES_ENOUGH).then_some(()))
    })?;

    let live = ["profile", "--kind", "live"];
    let top = [&live[..], &["--top", "20"]].concat();
    eprintln!("==> sampler {}", top.join(" "));
    let status = client.command(&top).status().context("start sampler")?;
    if !status.success() {
        bail!("sampler profile ended with {status}");
    }
    let folded = workspace.target.join("demo.folded");
    let mut command = client.command(&live);
    step::output(command.args(["--format", "folded", "-o"]).arg(&folded))?;
    let text = fs::read_to_string(&folded).with_context(|| format!("read {}", folded.display()))?;
    if text.is_empty() {
        bail!("{} is empty", folded.display());
    }
    eprintln!("==> {} stacks for a flame graph in {}", text.lines().count(), folded.display());
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
        command.args(["--pid", &pid.to_string(), "--interval", INTERVAL, "--listen", &listen]);
        eprintln!("==> samplerd --pid {pid} --interval {INTERVAL} --listen {listen}");
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

    /// Number of samples in the live profile.
    fn samples(&self) -> Result<u64> {
        let mut command = self.command(&["profile", "--kind", "live", "--format", "json"]);
        let profile: Value =
            serde_json::from_str(&step::output(&mut command)?).context("parse the json profile")?;
        profile["samples"].as_u64().context("the json profile has no number `samples`")
    }
}
