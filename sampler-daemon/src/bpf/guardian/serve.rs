//! The guardian's process: serves requests to attach and detach.

use super::wire::{self, Received};
use crate::bpf::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The argument that makes samplerd's program a guardian. The guardian's standard input is the
/// control socket.
pub const VERB: &str = "probe-guardian";

/// Command name of the guardian, at most 15 bytes. A `killall samplerd` does not match this name.
const NAME: &std::ffi::CStr = c"probe-guardian";
/// The guardian's priority is higher than that of other processes. While it waits for a CPU,
/// programs go on paying for probes that are to be removed.
const PRIORITY: i32 = -15;
/// Maximum number of threads that detach at a time. Further links are detached by the main thread.
const MAX_THREADS: usize = 256;
/// Maximum number of threads for the links of one request. More perf events than that share
/// threads.
const MAX_THREADS_PER_REQUEST: usize = 32;
/// Stack size of a thread that detaches. Such a thread makes system calls and nothing else.
const STACK_BYTES: usize = 64 << 10;

/// Links that are in use.
struct Held {
    links: Vec<OwnedFd>,
    socket: OwnedFd,
}

/// Serves until the control socket breaks and everything is detached.
///
/// # Errors
/// If standard input is not a control socket, or poll(2) fails. Everything is detached in these
/// cases, too.
pub fn serve() -> io::Result<()> {
    survive();
    let control = io::stdin();
    let mut held: Vec<Held> = Vec::new();
    let mut closers = Closers::default();
    loop {
        let (is_over, is_requested) = wait(&control, &mut held, &mut closers)?;
        if is_over {
            held.into_iter().rev().for_each(|of| closers.close(of));
            closers.wait();
            return Ok(());
        }
        if is_requested && let Some(Some(received)) = wire::receive_request(&control)? {
            held.extend(attach(received));
        }
    }
}

/// Protects this process from requests to end that concern other processes: the guardian ends after
/// samplerd.
fn survive() {
    sys::ignore_termination();
    // A session of its own gets neither a terminal's signals nor signals to samplerd's group. The
    // call fails for leaders of a group, and a new process is not a leader.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(NAME);
    // Both calls need rights that samplerd need not have. Neither call is essential.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let _ = rustix::process::setpriority_process(None, PRIORITY);
}

/// Waits for something to do. Detaches links that nobody uses any more, the last attached first.
/// Returns whether samplerd is gone, and whether a request waits.
fn wait(
    control: impl AsFd,
    held: &mut Vec<Held>,
    closers: &mut Closers,
) -> io::Result<(bool, bool)> {
    let mut descriptors = vec![PollFd::new(&control, PollFlags::IN)];
    descriptors.extend(held.iter().map(|of| PollFd::new(&of.socket, PollFlags::IN)));
    match poll(&mut descriptors, None) {
        Err(Errno::INTR) => return Ok((false, false)),
        other => other?,
    };
    let events: Vec<PollFlags> = descriptors.iter().map(PollFd::revents).collect();
    drop(descriptors);
    // Only the end of file ever arrives on a link's socket.
    let mut wanted = events[1..].iter().map(|events| events.is_empty());
    let gone: Vec<Held> = held.extract_if(.., |_| !wanted.next().unwrap_or(true)).collect();
    gone.into_iter().rev().for_each(|of| closers.close(of));
    let is_over = events[0].intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok((is_over, events[0].contains(PollFlags::IN)))
}

/// Attaches the probes of a request and sends the result.
fn attach(received: Received) -> Option<Held> {
    let before = thread_ns();
    let attached = received.request().attach();
    let spent_ns = thread_ns() - before;
    let error =
        attached.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    // If the requester is gone, the links are dropped here at once.
    wire::send_result(&received.socket, error, spent_ns).ok()?;
    Some(Held { links: attached.ok()?, socket: received.socket })
}

/// Threads that detach. A link's breakpoints are removed at once. Then the thread waits some 35 ms
/// for threads that still run the link's programs.
#[derive(Default)]
struct Closers(Vec<JoinHandle<()>>);

impl Closers {
    /// Detaches links, on threads if threads can be started.
    fn close(&mut self, held: Held) {
        let socket = Arc::new(held.socket);
        for hand in dealt(held.links, MAX_THREADS_PER_REQUEST) {
            self.0.retain(|thread| !thread.is_finished());
            let socket = Arc::clone(&socket);
            let close = move || {
                let before = thread_ns();
                drop(hand);
                wire::send_spent(&socket, thread_ns() - before);
            };
            if self.0.len() >= MAX_THREADS {
                close();
            } else if let Ok(thread) = Builder::new().stack_size(STACK_BYTES).spawn(close) {
                self.0.push(thread);
            }
            // Without a thread, the links were dropped together with the closure.
        }
    }

    /// Waits for the end of all threads.
    fn wait(self) {
        for thread in self.0 {
            // A thread that only drops links does not panic.
            let _ = thread.join();
        }
    }
}

/// Distributes links over threads, the last attached first.
fn dealt<T>(links: Vec<T>, threads: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = Vec::new();
    hands.resize_with(threads.min(links.len()), Vec::new);
    for (number, link) in links.into_iter().rev().enumerate() {
        hands[number % threads].push(link);
    }
    hands
}

/// CPU time of this thread, nanoseconds.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::super::pair;
    use super::*;
    use rustix::net::RecvFlags;

    #[test]
    fn links_are_closed_in_reverse_order() {
        assert_eq!(
            dealt(vec!["free", "new", "leave", "enter"], 9),
            [["enter"], ["leave"], ["new"], ["free"]]
        );
        assert_eq!(dealt((0..5).collect(), 2), [vec![4, 2, 0], vec![3, 1]]);
        assert!(dealt(Vec::<u8>::new(), 2).is_empty());
    }

    /// A held link, the socket of its user, and the other end of what the link holds, which closes
    /// with the link.
    fn held() -> (Held, OwnedFd, OwnedFd) {
        let ((socket, client), (link, end)) = (pair().unwrap(), pair().unwrap());
        (Held { links: vec![link], socket }, client, end)
    }

    #[test]
    fn unwanted_links_are_closed_and_others_stay() {
        let (control, ours) = pair().unwrap();
        let (first, client, end) = held();
        let (second, kept, kept_end) = held();
        let (mut all, mut closers) = (vec![first, second], Closers::default());
        rustix::net::shutdown(&client, rustix::net::Shutdown::Write).unwrap();
        assert_eq!(wait(&control, &mut all, &mut closers).unwrap(), (false, false));
        assert!(wire::receive_spent(&client, RecvFlags::empty()).unwrap().is_some());
        assert_eq!(wire::receive_spent(&client, RecvFlags::empty()), Ok(None));
        assert_eq!(wire::receive_spent(&end, RecvFlags::empty()), Ok(None));
        assert_eq!(all.len(), 1);
        assert_eq!(wire::receive_spent(&kept_end, RecvFlags::DONTWAIT), Err(Errno::AGAIN));
        // When samplerd ends, all its sockets close.
        drop((kept, ours));
        assert!(wait(&control, &mut all, &mut closers).unwrap().0);
        assert!(all.is_empty());
        closers.wait();
        assert_eq!(wire::receive_spent(&kept_end, RecvFlags::empty()), Ok(None));
    }
}
