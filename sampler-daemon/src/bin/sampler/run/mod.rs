//! `sampler run`: a program under a private samplerd, from its first allocation to its end.
//!
//! A copy of this program becomes the command ([`starter`]). The copy is held before `execve` until
//! samplerd has attached to it and to every file that it will map. Allocators that the program
//! opens itself are missed until samplerd finds them.

mod args;
mod child;
mod daemon;
mod preload;
mod program;
mod report;
pub(crate) mod starter;
mod user;

pub(crate) use args::{RunVerb, StartVerb};
pub(crate) use daemon::find;

use crate::connect::{self, Address, Client};
use crate::output;
use anyhow::{Context as _, Result, anyhow, bail};
use child::{Held, Program, code};
use daemon::{Daemon, Private};
use rustix::process::Signal;
use sampler_daemon::pid_namespace::PidNamespace;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::task::spawn_blocking;
use user::User;

pub(crate) async fn run(verb: RunVerb, json: bool) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "run: loading eBPF programs takes root (try: sudo sampler run …; COMMAND runs as you)"
        );
    }
    // The copy opens the pipes through this process's pid in `/proc`, so pids must agree.
    PidNamespace::of_daemon()?;
    let samplerd = find()?;
    verb.file().map_or(Ok(()), |path| output::check_file(path))?;
    let user = User::of(&verb)?;
    // The program starts before signals are caught, so that it ignores the signals that the caller
    // ignores.
    let program = Program::start(&verb, user.as_ref())?;
    let mut caught = Caught::new()?;
    let attached = tokio::select! {
        attached = attach(&verb, &samplerd, program) => attached?,
        // The program has not begun. Dropping the guards ends what was started.
        signal = caught.any() => return Ok(ExitCode::from(128 + signal.as_raw() as u8)),
    };
    let (program, mut session) = match attached {
        Attached::Refused(status) => return Ok(ExitCode::from(code(status))),
        Attached::Ready(ready) => *ready,
    };
    let (has_run, status) = to_its_end(program, &mut caught).await?;
    if has_run {
        let written = report::write(&mut session.client, &session.address, &verb, json).await;
        // The program's exit code takes precedence over an error of the report, which is only
        // printed.
        if let Err(error) = written {
            output::complain(&format!("{error:#}"));
        }
    }
    let complaints = spawn_blocking(move || session.daemon.stop()).await;
    output::say(&complaints.unwrap_or_default());
    Ok(ExitCode::from(code(status)))
}

/// The connection to the private samplerd.
struct Session {
    daemon: Daemon,
    client: Client,
    address: Address,
}

/// The result of the start.
enum Attached {
    /// The program is attached, and waits for its release.
    Ready(Box<(Program, Session)>),
    /// The copy has ended, and has written why.
    Refused(ExitStatus),
}

async fn attach(verb: &RunVerb, samplerd: &Path, mut program: Program) -> Result<Attached> {
    let held = spawn_blocking(move || program.hold().map(|held| (held, program))).await;
    let (held, program) = held.context("wait for the program")??;
    let files = match held {
        Held::Waiting(files) => files,
        Held::Ended(status) => return Ok(Attached::Refused(status)),
    };
    // The directory is removed as soon as the connection exists.
    let private = verb.listen.is_none().then(Private::make).transpose()?;
    let address = match (&private, &verb.listen) {
        (Some(private), _) => Address::Unix(private.socket()),
        (None, listen) => {
            let listen = listen.as_deref().unwrap_or_default();
            listen.parse().map_err(|error| anyhow!("--listen {listen:?}: {error}"))?
        }
    };
    let arguments = arguments(verb, program.pid(), &address, files);
    let mut daemon = Daemon::start(samplerd, &arguments)?;
    let ready = spawn_blocking(move || daemon.ready().map(|()| daemon)).await;
    let daemon = ready.context("wait for samplerd")??;
    let client = connect::client(&address).await?;
    Ok(Attached::Ready(Box::new((program, Session { daemon, client, address }))))
}

/// Releases the program and waits for its end. Returns whether the program has run, and its status.
async fn to_its_end(mut program: Program, caught: &mut Caught) -> Result<(bool, ExitStatus)> {
    let signals = program.signals()?;
    let mut ended = spawn_blocking(move || {
        let has_run = program.release()?;
        program.wait().map(|status| (has_run, status))
    });
    loop {
        tokio::select! {
            ended = &mut ended => return ended.context("wait for the program")?,
            signal = caught.any() => pass_on(&signals, signal),
        }
    }
}

fn arguments(verb: &RunVerb, pid: u32, address: &Address, files: Vec<OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--follow".into(), format!("--pid={pid}").into()];
    arguments.push(format!("--listen={address}").into());
    arguments.extend(verb.of_daemon().into_iter().map(OsString::from));
    for file in files {
        let mut argument = OsString::from("--probe-file=");
        argument.push(file);
        arguments.push(argument);
    }
    arguments
}

/// Passes on signals that were sent to this process alone. A terminal's signals have reached the
/// program too: it is in the same group.
fn pass_on(signals: &child::Signals, signal: Signal) {
    if signal == Signal::TERM || signal == Signal::HUP {
        signals.send(signal);
    }
}

/// Signals that would end this process without a profile.
struct Caught {
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Caught {
    fn new() -> Result<Caught> {
        let catch = |kind| signal(kind).context("catch signals");
        Ok(Caught {
            interrupt: catch(SignalKind::interrupt())?,
            quit: catch(SignalKind::quit())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
