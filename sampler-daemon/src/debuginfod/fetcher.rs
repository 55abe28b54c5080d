//! samplerd's side of one fetch: starts a child that writes into a file, and waits for the child's
//! end.

use super::limits::Limits;
use super::serve::{Ending, VERB};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time beyond the limit of a fetch after which samplerd kills the child.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum bytes of a child's message that are shown.
const MAX_MESSAGE_BYTES: u64 = 200;
/// Environment variables that name the places of this system's certificates.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The result of a fetch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fetched {
    /// The file holds all that the server sent. Its content is not checked yet.
    Whole,
    /// The server has no such file.
    Missing,
    /// The server's answer is not accepted, for this reason.
    Refused(String),
    /// The server did not answer correctly, or the child failed.
    Failed(String),
}

/// Fetches the file at `url` into `file`, through a child that runs `program`, which is samplerd.
pub(super) fn fetch(program: &Path, url: &str, file: &File, limits: Limits) -> Fetched {
    let mut child = match start(program, url, file, limits) {
        Ok(child) => child,
        Err(error) => return Fetched::Failed(format!("start a child that asks it: {error}")),
    };
    let ended = wait(&child, limits.time + GRACE);
    // Killing fails if the child has ended already.
    let _ = child.kill();
    let code = child.wait().ok().and_then(|status| status.code());
    let said = message(&mut child);
    match code.and_then(Ending::of_code) {
        _ if !ended => Fetched::Failed(format!("no end after {} s", limits.time.as_secs())),
        Some(Ending::Whole) => Fetched::Whole,
        Some(Ending::Missing) => Fetched::Missing,
        Some(Ending::Refused) => Fetched::Refused(said),
        Some(Ending::Failed) => Fetched::Failed(said),
        None => Fetched::Failed(format!("the child that asked it died {said}")),
    }
}

fn start(program: &Path, url: &str, file: &File, limits: Limits) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    command.arg(VERB).env_clear().env("MIMALLOC_ARENA_RESERVE", "0");
    let set = CERTIFICATES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.envs(set).stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // The child gets the URL by standard input. Everybody can read a process's arguments, and a URL
    // may contain a password.
    let mut stdin = child.stdin.take();
    let (bytes, seconds) = (limits.bytes, limits.time.as_secs());
    let written = stdin.as_mut().map(|pipe| write!(pipe, "{bytes}\n{seconds}\n{url}\n"));
    // Writing fails if the child has died already. Waiting for the child then reports its death.
    let _ = written;
    Ok(child)
}

/// Whether the child has ended in time.
fn wait(child: &Child, time: Duration) -> bool {
    let end = Instant::now() + time;
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty());
    let Ok(pidfd) = pidfd else { return false };
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// The first line of the child's message, without control characters: the message may contain
/// anything.
fn message(child: &mut Child) -> String {
    let mut said = Vec::new();
    let pipe = child.stderr.take();
    // The child has ended, so reading its pipe ends too.
    let _ = pipe.map(|pipe| pipe.take(MAX_MESSAGE_BYTES).read_to_end(&mut said));
    let line = String::from_utf8_lossy(&said);
    let line = line.lines().next().unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).collect()
}
