//! The thread that looks for counters in the memory of processes that have a budget: beside everything else, and in one process after the other.

use crate::target::words::{Search, Step, Word};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often it is looked whether a process has done something.
const POLL: Duration = Duration::from_millis(20);
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
}

fn run(asks: &Receiver<Searched>, tell: &Sender<(Searched, Vec<Word>)>) {
    let mut all: VecDeque<Begun> = VecDeque::new();
    loop {
        let next = match all.is_empty() {
            true => asks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => asks.recv_timeout(POLL),
        };
        match next {
            Ok(of) => {
                let search = Search::new(of.pid, of.start_ticks);
                if let (Ok(search), true) = (search, all.len() < MOST_WAITING) {
                    all.push_back(Begun { of, search, since: Instant::now() });
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut room = AT_ONCE;
        all.retain_mut(|begun| {
            if !begun.search.has_begun() && room == 0 {
                return true;
            }
            let step = begun.search.step();
            let has_begun = begun.search.has_begun();
            if !has_begun {
                begun.since = Instant::now();
            }
            room = room.saturating_sub(usize::from(has_begun));
            match step {
                // A worker that has ended needs none.
                Step::Found(words) => tell.send((begun.of, words)).is_ok(),
                Step::Gone | Step::Done => false,
                Step::Waits | Step::Looked => !has_begun || begun.since.elapsed() < MOST_TIME,
            }
        });
    }
}
