//! A child process whose lines arrive with a deadline, and that never outlives its test.

use crate::wait;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A running child.
pub struct Child {
    name: String,
    process: Process,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Starts `command` with its stdin and stdout on pipes.
    pub fn start(name: &str, command: &mut Command) -> Result<Child> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().context("stdout is a pipe")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Child { name: name.to_string(), process, stdin, lines })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line of the child's output.
    pub fn line(&mut self) -> Result<String> {
        self.line_within(wait::DEADLINE)
    }

    /// [`Child::line`] with another deadline.
    pub fn line_within(&mut self, deadline: Duration) -> Result<String> {
        match self.lines.recv_timeout(deadline) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("{} says nothing", self.name),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait()?;
                bail!("{} ended ({status}) before it said what was expected", self.name)
            }
        }
    }

    /// Waits until the child's output is closed, and discards the output. The child is not reaped.
    pub fn until_silent(&mut self, deadline: Duration) -> Result<()> {
        let start = std::time::Instant::now();
        loop {
            match self.lines.recv_timeout(deadline.saturating_sub(start.elapsed())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => bail!("{} does not end", self.name),
            }
        }
    }

    /// Sends a line to the child's stdin.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        // One write for the whole line: a child that has read the first byte may be gone before a
        // second write.
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .with_context(|| format!("write to {}", self.name))?;
        stdin.flush().with_context(|| format!("write to {}", self.name))
    }

    /// Closes the child's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        kill(self.pid(), signal).with_context(|| format!("signal {}", self.name))
    }

    /// Returns how the child has ended; `None` while the child runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process.try_wait().with_context(|| format!("wait for {}", self.name))
    }

    /// Waits for the end of the child.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.wait_for(wait::DEADLINE)
    }

    /// Waits for the end of the child, not longer than `deadline`.
    pub fn wait_for(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let name = format!("the end of {}", self.name);
        wait::until_deadline(&name, deadline, || self.ended())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too. An error means that the process is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// kill(2).
pub fn kill(pid: u32, signal: i32) -> Result<()> {
    let status = Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status()
        .context("run kill")?;
    anyhow::ensure!(status.success(), "kill -{signal} {pid}: {status}");
    Ok(())
}

/// A finished command with its output.
#[derive(Debug)]
pub struct Finished {
    /// Process id that the command had.
    pub pid: u32,
    /// How the command ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Exit code, −1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Fails unless the code is 0.
    pub fn success(self, what: &str) -> Result<Finished> {
        if !self.status.success() {
            bail!("{what}: {}: {}", self.status, self.stderr);
        }
        Ok(self)
    }
}

/// Runs a command to its end, killing it after [`wait::DEADLINE`].
pub fn finish(command: &mut Command) -> Result<Finished> {
    finish_within(command, wait::DEADLINE)
}

/// [`finish`] with another deadline.
pub fn finish_within(command: &mut Command, deadline: Duration) -> Result<Finished> {
    let name = format!("{command:?}");
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {name}"))?;
    let mut stdout = process.stdout.take().context("stdout is a pipe")?;
    let mut stderr = process.stderr.take().context("stderr is a pipe")?;
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let err = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let end = format!("the end of {name}");
    let status = wait::until_deadline(&end, deadline, || Ok(process.try_wait()?));
    if status.is_err() {
        let _ = process.kill();
        let _ = process.wait();
    }
    let joined = |thread: std::thread::JoinHandle<std::io::Result<Vec<u8>>>| -> Result<Vec<u8>> {
        let bytes = thread.join().map_err(|_| anyhow::anyhow!("a reader panicked"))?;
        bytes.with_context(|| format!("read from {name}"))
    };
    let (stdout, stderr) = (joined(out)?, joined(err)?);
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    let status = status.with_context(|| format!("it said: {stderr}"))?;
    Ok(Finished { pid: process.id(), status, stdout, stderr })
}
