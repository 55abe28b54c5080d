//! The thread that looks for counters in the memory of processes that have a budget: beside everything else, and in one process after the other.

use crate::target::words::{Search, Step, Word};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often it is looked whether a process has done something.
const POLL: Duration = Duration::from_millis(20);
/// How rarely at most, of one that has begun, and of one that has not: mostly idle ones take their time.
const LONGEST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// Processes whose memory is kept at a time.
const AT_ONCE: usize = 2;
/// A process that has begun and does no more makes room for others.
const MOST_TIME: Duration = Duration::from_secs(120);
/// Processes that wait to be looked at; of more none is.
const MOST_WAITING: usize = 256;

/// The image of a process that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Searched {
    pub(super) slot: u32,
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
    pub(super) generation: u32,
}

/// The thread; it ends with this.
#[derive(Debug)]
pub(super) struct Searcher {
    asked: Sender<Searched>,
    found: Receiver<(Searched, Vec<Word>)>,
}

impl Searcher {
    /// Starts it.
    pub(super) fn start() -> io::Result<Searcher> {
        let (asked, asks) = channel();
        let (tell, found) = channel();
        Builder::new().name("searcher".into()).spawn(move || run(&asks, &tell))?;
        Ok(Searcher { asked, found })
    }

    /// Has a process searched.
    pub(super) fn ask(&self, of: Searched) {
        if self.asked.send(of).is_err() {
            tracing::debug!(pid = of.pid, "nobody looks for counters any more");
        }
    }

    /// What was found since.
    pub(super) fn found(&self) -> impl Iterator<Item = (Searched, Vec<Word>)> {
        self.found.try_iter()
    }
}

/// One that goes on.
struct Begun {
    of: Searched,
    search: Search,
    /// Since when its memory is kept, or the last time that it was not.
    since: Instant,
    /// When it is looked again whether it has done something, and how long after that.
    next: Instant,
    pause: Duration,
}

impl Begun {
    fn new(of: Searched, search: Search) -> Begun {
        let now = Instant::now();
        Begun { of, search, since: now, next: now, pause: POLL }
    }

    /// Looks, if it is time; what came of it.
    fn step(&mut self) -> Step {
        let step = self.search.step();
        let has_begun = self.search.has_begun();
        let now = Instant::now();
        if !has_begun {
            self.since = now;
        }
        self.pause = match step {
            Step::Waits => (2 * self.pause).min(LONGEST[usize::from(!has_begun)]),
            _ => POLL,
        };
        self.next = now + self.pause;
        step
    }
}

/// Lets those search that are due, of which some keep what they have seen; who has done so drops out.
fn turn(all: &mut VecDeque<Begun>, mut tell: impl FnMut(Searched, Vec<Word>) -> bool) {
    let mut room = AT_ONCE.saturating_sub(all.iter().filter(|of| of.search.has_begun()).count());
    all.retain_mut(|begun| {
        let had_begun = begun.search.has_begun();
        if Instant::now() < begun.next || !had_begun && room == 0 {
            return true;
        }
        let step = begun.step();
        let has_begun = begun.search.has_begun();
        room -= usize::from(has_begun && !had_begun);
        match step {
            // A worker that has ended needs none.
            Step::Found(words) => tell(begun.of, words),
            Step::Gone | Step::Done => false,
            Step::Waits | Step::Looked => !has_begun || begun.since.elapsed() < MOST_TIME,
        }
    });
}

fn run(asks: &Receiver<Searched>, tell: &Sender<(Searched, Vec<Word>)>) {
    let mut all: VecDeque<Begun> = VecDeque::new();
    loop {
        let next = match all.is_empty() {
            true => asks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => asks.recv_timeout(POLL),
        };
        match next {
            Ok(of) => match Search::new(of.pid, of.start_ticks) {
                Ok(search) if all.len() < MOST_WAITING => {
                    all.push_back(Begun::new(of, search));
                }
                Ok(_) => tracing::debug!(of.pid, "too many wait to be searched for counters"),
                Err(error) => tracing::debug!(of.pid, "is not searched for counters: {error}"),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        turn(&mut all, |of, words| tell.send((of, words)).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Running;
    use crate::target::process::Process;
    use std::process::Command;

    #[test]
    fn few_keep_memory_at_a_time() {
        let children: Vec<Running> = (0..5).map(|_| Running::counting()).collect();
        let begun = |child: &Running| {
            let Process { pid, start_ticks, .. } = Process::open(child.pid()).unwrap();
            let of = Searched { slot: 0, pid, start_ticks, generation: 0 };
            Begun::new(of, Search::new(pid, start_ticks).unwrap())
        };
        let mut all: VecDeque<Begun> = children.iter().map(begun).collect();
        // The last in the queue begin first: those before them do not know the time yet.
        all.iter_mut().take(3).for_each(|of| of.next += Duration::from_millis(300));
        let (mut found, mut most) = (0, 0);
        let deadline = Instant::now() + Duration::from_secs(60);
        while found < 3 {
            turn(&mut all, |_, words| {
                found += usize::from(!words.is_empty());
                true
            });
            most = most.max(all.iter().filter(|of| of.search.has_begun()).count());
            assert!(most <= AT_ONCE, "{most}");
            assert!(Instant::now() < deadline, "{found}");
            std::thread::yield_now();
        }
        assert_eq!(most, AT_ONCE);
        // And who is idle is asked ever more rarely.
        let idle = Running::start(Command::new("sleep").arg("1000"));
        let mut idle = begun(&idle);
        (0..12).for_each(|_| assert_eq!(idle.step(), Step::Waits));
        assert_eq!(idle.pause, LONGEST[1]);
    }
}
