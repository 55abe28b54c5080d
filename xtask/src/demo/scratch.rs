//! A private directory and child processes. Both are removed, whatever ends the run.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use anyhow::{Context, Result, bail};

/// Time between two checks of a condition.
const POLL: Duration = Duration::from_millis(100);

/// Waits until `check` finds something, at most for `deadline`.
///
/// # Errors
/// If `check` fails, or the time is over. The text names `what`.
pub(crate) fn wait<T>(
    what: &str,
    deadline: Duration,
    mut check: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = check()? {
            return Ok(found);
        }
        if started.elapsed() > deadline {
            bail!("{what}: not within {} s", deadline.as_secs());
        }
        thread::sleep(POLL);
    }
}

/// A directory that only its owner can read. It is removed at the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory in the system's temporary directory. Its path is short, as a socket
    /// needs it.
    ///
    /// # Errors
    /// If the directory exists already, or cannot be created.
    pub(crate) fn create() -> Result<Self> {
        let path = env::temp_dir().join(format!("sampler-demo-{}", process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("create {}", path.display()))?;
        Ok(Self(path))
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error here cannot be reported any more.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A child process that does not outlive this value.
pub(crate) struct Running {
    what: &'static str,
    /// The process.
    pub(crate) child: Child,
}

impl Running {
    /// Takes responsibility for a child.
    pub(crate) fn new(what: &'static str, child: Child) -> Self {
        Self { what, child }
    }

    /// Exit status of the process if it has ended.
    ///
    /// # Errors
    /// If the state of the process cannot be read.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("wait for {}", self.what))
    }

    /// Sends SIGTERM to the process, and waits for its end.
    ///
    /// # Errors
    /// If the process does not end in time.
    pub(crate) fn terminate(mut self, deadline: Duration) -> Result<ExitStatus> {
        // The shell's own `kill`: the program of that name is not everywhere.
        let mut shell = Command::new("sh");
        shell.args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()]);
        shell.status().context("start sh")?;
        let what = format!("{} ends after SIGTERM", self.what);
        wait(&what, deadline, || self.ended())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that cleans up if this program is killed, by Ctrl-C for example.
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Starts the watchdog. If this program ends without [`Watchdog::dismiss`], `pid` gets a
    /// SIGTERM and the directory is removed.
    ///
    /// # Errors
    /// If the watchdog cannot be started.
    pub(crate) fn start(pid: u32, directory: &Path) -> Result<Self> {
        // The watchdog's input ends without a line when this program dies for any reason.
        const SCRIPT: &str = "trap '' HUP INT TERM; read -r line && exit 0; \
                              kill -TERM \"$0\" 2>/dev/null; rm -rf \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, &pid.to_string()]).arg(directory).stdin(Stdio::piped());
        Ok(Self(command.spawn().context("start sh")?))
    }

    /// Ends the watchdog after everything has been cleaned up.
    ///
    /// # Errors
    /// If the watchdog has ended before.
    pub(crate) fn dismiss(mut self) -> Result<()> {
        if let Some(mut input) = self.0.stdin.take() {
            input.write_all(b"done\n").context("dismiss the watchdog")?;
        }
        self.0.wait().context("wait for the watchdog")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_condition_or_with_the_deadline() {
        let mut checks = 0;
        let found = wait("three", Duration::from_secs(10), || {
            checks += 1;
            Ok((checks == 3).then_some(checks))
        });
        assert_eq!(found.unwrap(), 3);
        let never = wait::<()>("x", Duration::ZERO, || Ok(None)).unwrap_err().to_string();
        assert_eq!(never, "x: not within 0 s");
    }

    #[test]
    fn the_watchdog_cleans_up_when_its_owner_dies() {
        let directory = env::temp_dir().join(format!("xtask-watchdog-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut watchdog = Watchdog::start(child.id(), &directory).unwrap();
        // The end of a process closes its pipes in the same way.
        drop(watchdog.0.stdin.take());
        watchdog.0.wait().unwrap();
        assert!(!directory.exists());
        assert!(!child.wait().unwrap().success());
    }
}
