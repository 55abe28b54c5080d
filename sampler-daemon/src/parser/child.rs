//! One parser process.

use super::files::Others;
use super::pair;
use super::serve::VERB;
use super::wire::{self, Answer, MAX_PLACES, Message, Request, Wanted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt::{self, Formatter};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::time::{Duration, Instant};

/// Time that a parser may take to start, or to wait for a disk or a CPU, in addition to its CPU
/// time.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the parser's CPU time is checked.
const CHECK_PERIOD: Duration = Duration::from_millis(20);
/// Maximum number of times that a parser may ask for a file in one request: for the file itself,
/// for places of its debug file, and for the `.dwo` file of each place's unit.
const MAX_OPENED: usize = 256 + MAX_PLACES;

/// Why a request has no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The parser could not be started.
    Unstarted,
    /// The parser has ended.
    Died,
    /// The parser took too long and was killed.
    Late,
    /// The parser sent an invalid message and was killed.
    Wrong,
    /// The file's debug information is damaged or too large. The parser goes on.
    Unreadable,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Unstarted => "could not be started",
            Failure::Died => "ended over it",
            Failure::Late => "took too long over it",
            Failure::Wrong => "answered wrongly",
            Failure::Unreadable => "could not read it",
        })
    }
}

/// A parser process. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// Number of requests that the parser has received.
    requests: u64,
}

impl Child {
    /// Starts a parser: samplerd's program with [`VERB`].
    pub(super) fn start(program: &Path) -> Result<Child, Failure> {
        let unstarted = |why: &dyn fmt::Display| {
            tracing::error!("start the process that reads names: {why}");
            Failure::Unstarted
        };
        let (socket, its) = pair().map_err(|error| unstarted(&error))?;
        let mut command = Command::new(program);
        command.arg(VERB).env_clear().stdin(Stdio::from(its));
        // An arena would be reserved at once, and would count as a whole against the memory limit.
        command.env("MIMALLOC_ARENA_RESERVE", "0");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| unstarted(&error))?;
        let mut child = Child { process, socket, buffer: Vec::new(), requests: 0 };
        // Closes samplerd's copy of the parser's end of the socket.
        drop(command);
        let until = Deadline::after(WAIT_TIMEOUT, &child);
        match child.receive(&until) {
            Ok(Message::Ready) => Ok(child),
            Ok(Message::Unconfined(why)) => Err(unstarted(&why)),
            other => Err(unstarted(&format!("{other:?}"))),
        }
    }

    /// Whether the parser has received no request yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.requests == 0
    }

    /// Sends a request about `file` and returns its answers. The parser may also ask for `others`.
    /// `time` is the parser's CPU time for the request.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        file: &File,
        others: &mut Others<'_>,
        time: Duration,
    ) -> Result<Vec<Answer>, Failure> {
        self.requests += 1;
        let until = Deadline::after(time, self);
        if request.wanted == Wanted::BuildId {
            return self.exchange(request, 1, (file, others), &until);
        }
        let mut answers = Vec::with_capacity(request.places.len());
        for places in request.places.chunks(MAX_PLACES) {
            let part = Request { places: places.to_vec(), ..request.clone() };
            answers.extend(self.exchange(&part, places.len(), (file, others), &until)?);
        }
        Ok(answers)
    }

    /// Sends one request and receives its `count` answers.
    fn exchange(
        &mut self,
        request: &Request,
        count: usize,
        (file, others): (&File, &mut Others<'_>),
        until: &Deadline,
    ) -> Result<Vec<Answer>, Failure> {
        wire::send_request(&self.socket, request).map_err(|_| Failure::Died)?;
        let mut answers = Vec::with_capacity(count);
        let mut opened = 0;
        while answers.len() < count {
            match self.receive(until)? {
                Message::Answers(some) if answers.len() + some.len() <= count => {
                    answers.extend(some);
                }
                Message::Open(path) if opened < MAX_OPENED => {
                    opened += 1;
                    self.hand_over(&path, request, file, others)?;
                }
                Message::Unreadable if request.debug => return Err(Failure::Unreadable),
                _ => return Err(Failure::Wrong),
            }
        }
        Ok(answers)
    }

    fn hand_over(
        &self,
        path: &[u8],
        request: &Request,
        file: &File,
        others: &mut Others<'_>,
    ) -> Result<(), Failure> {
        let other;
        let found = if path == request.path.as_bytes() {
            Some(file.as_fd())
        } else {
            other = others.open(path);
            other.as_ref().map(AsFd::as_fd)
        };
        wire::send_file(&self.socket, found).map_err(|_| Failure::Died)
    }

    /// Receives the parser's next message.
    fn receive(&mut self, until: &Deadline) -> Result<Message, Failure> {
        loop {
            if until.is_over(self.process.id()) {
                return Err(Failure::Late);
            }
            let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
            let period = Timespec { tv_sec: 0, tv_nsec: CHECK_PERIOD.as_nanos() as i64 };
            match poll(&mut descriptors, Some(&period)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(_) => return Err(Failure::Died),
            }
        }
        wire::receive_message(&self.socket, &mut self.buffer).ok_or(Failure::Died)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Killing fails if the parser has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The time at which a parser is late: by its CPU time, or by the clock if the parser waits.
struct Deadline {
    time: Instant,
    processor: Duration,
}

impl Deadline {
    fn after(time: Duration, child: &Child) -> Deadline {
        let spent = processor_time(child.process.id()).unwrap_or_default();
        Deadline { time: Instant::now() + time + WAIT_TIMEOUT, processor: spent + time }
    }

    fn is_over(&self, pid: u32) -> bool {
        let is_spent = || processor_time(pid).is_some_and(|spent| spent > self.processor);
        Instant::now() > self.time || is_spent()
    }
}

/// Returns the CPU time that a process with one thread has used.
fn processor_time(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
