//! The program as a child process: started, held before its first instruction, released, waited
//! for.

use super::args::RunVerb;
use super::preload;
use super::starter::FAILED;
use super::user::User;
use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};

/// How often `hold` checks whether the copy has ended before it wrote anything.
const POLL_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The program, or the copy of `sampler` that will become the program.
pub(super) struct Program {
    child: Child,
    pidfd: OwnedFd,
    report: PipeReader,
    /// The copy's ends of the pipes, kept until the copy has opened them. Without a writer the pipe
    /// would be at its end.
    ends: Option<(PipeReader, PipeWriter)>,
    go: Option<PipeWriter>,
}

/// The state of the copy after [`Program::hold`].
pub(super) enum Held {
    /// The copy waits. The program will map these files.
    Waiting(Vec<OsString>),
    /// The copy has ended, and has written why to standard error.
    Ended(ExitStatus),
}

impl Program {
    /// Starts the copy.
    pub(super) fn start(verb: &RunVerb, user: Option<&User>) -> Result<Program> {
        let (go_reader, go) = pipe().context("make a pipe")?;
        let (report, report_writer) = pipe().context("make a pipe")?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sampler").arg("__start");
        command.arg(format!("--go={}", go_reader.as_raw_fd()));
        command.arg(format!("--report={}", report_writer.as_raw_fd()));
        command.args(user.map(User::arguments).unwrap_or_default());
        command.args(preload::arguments(verb)?);
        command.arg("--").args(&verb.command);
        let child = command.spawn().context("start a copy of this program")?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("open the program's pidfd")?;
        let ends = Some((go_reader, report_writer));
        Ok(Program { child, pidfd, report, ends, go: Some(go) })
    }

    /// Returns the process id of the copy, which is also that of the program.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the copy is ready to become the program.
    pub(super) fn hold(&mut self) -> Result<Held> {
        let mut text = Vec::new();
        while !text.ends_with(&[0, 0]) && text != [0] {
            let mut descriptors = [PollFd::new(&self.report, PollFlags::IN)];
            let ready = poll(&mut descriptors, Some(&POLL_PERIOD)).unwrap_or(0);
            if ready > 0 {
                let mut chunk = [0; 4096];
                let length = self.report.read(&mut chunk).context("read from the program")?;
                text.extend_from_slice(&chunk[..length]);
            } else if let Some(status) = self.child.try_wait().context("wait for the program")? {
                return Ok(Held::Ended(status));
            }
        }
        // The copy has opened its ends of the pipes.
        self.ends = None;
        let paths = text.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(Held::Waiting(paths.map(|path| OsString::from_vec(path.to_vec())).collect()))
    }

    /// Lets the copy become the program. Returns whether `execve` succeeded.
    pub(super) fn release(&mut self) -> Result<bool> {
        if let Some(mut go) = self.go.take() {
            go.write_all(b"!").context("let the program go")?;
        }
        let mut said = Vec::new();
        // The copy's end of the pipe closes at `execve`.
        self.report.read_to_end(&mut said).context("read from the program")?;
        Ok(said != FAILED)
    }

    /// Waits until the program ends.
    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().context("wait for the program")
    }

    /// Returns a sender of signals, for use while another thread waits for the program.
    pub(super) fn signals(&self) -> Result<Signals> {
        Ok(Signals(self.pidfd.try_clone().context("copy the program's pidfd")?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A copy that was not released must not stay. After its release the program runs
        // independently.
        if self.go.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends signals to the program, and never to another process that reuses its pid.
pub(super) struct Signals(OwnedFd);

impl Signals {
    pub(super) fn send(&self, signal: Signal) {
        // A program that has ended needs no signal.
        let _ = pidfd_send_signal(&self.0, signal);
    }
}

/// Returns the exit code that a shell would report.
pub(super) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code(ExitStatus::from_raw(15)), 143);
        assert_eq!(code(ExitStatus::from_raw(0)), 0);
    }
}
