//! The event loop of the worker: it waits, reads the ring, handles events, and answers requests.
//!
//! The order of the steps matters. A comment at each step says why it has its place.

use super::config::AttachMode;
use super::records::ingest::Event;
use super::worker::Worker;
use anyhow::bail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

/// Records that are read before commands and processes are checked again.
pub(super) const BATCH: usize = 1024;
/// Index of the eventfd among the polled descriptors.
const WAKE: usize = 1;
/// Index of the descriptor that hangs up when the guardian ends.
const GUARDIAN: usize = 2;
/// How long records may wait in the ring when few arrive (many wake the worker).
const MAX_RECORD_DELAY: Duration = Duration::from_millis(100);
/// As [`MAX_RECORD_DELAY`], where processes come and go: a short process must be read soon.
const OPEN_PERIOD: Duration = Duration::from_millis(20);
/// The error when nothing can be seen any more.
const NO_GUARDIAN: &str = "the probe guardian has ended, and every probe with it: nothing is profiled any more (start samplerd again)";

/// What the worker finds after it has waited.
struct Woken {
    /// Slots whose process has exited.
    exited: Vec<u32>,
    /// Whether the guardian has ended, and every link with it.
    is_unguarded: bool,
}

/// Raises this thread's priority. While the thread waits for a CPU, programs pay for probes that it
/// should remove.
fn raise_thread_priority() {
    const NICENESS: i32 = -15;
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), NICENESS) {
        tracing::warn!("run ahead of others: {error}");
    }
}

impl Worker {
    /// Runs the loop until [`Command::Stop`](super::command::Command::Stop); an error if nothing
    /// can be seen any more.
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        if self.config.windows.is_some() {
            raise_thread_priority();
        }
        let mut are_more = false;
        loop {
            self.shared.heartbeat.beat();
            let woken = self.wait(are_more);
            if woken.is_unguarded {
                self.shut_down();
                bail!("{NO_GUARDIAN}");
            }
            // First step: programs pay for each call while a window is open.
            self.open_and_end_windows();
            // Before the ring is read: the fill of the ring says what the next turn needs.
            self.note_ring_fill();
            self.read(BATCH);
            // After the read, and before anything that takes long.
            self.control_pressure();
            self.handle_events();
            // After the events: they may include the end of a process whose slot belongs to another
            // process by now.
            self.detach_gone(&woken.exited);
            // After all events: an answer contains every call that returned before its request.
            are_more = match self.answer_some() {
                ControlFlow::Continue(are_more) => are_more,
                ControlFlow::Break(()) => {
                    self.shut_down();
                    return Ok(());
                }
            };
            // Steps that may wait for a turn, each with its own period.
            self.look_at_due_processes();
            self.inspect_injected();
            self.survey();
            self.look_at_new_images();
            self.maintain_store();
            self.adapt_sampling();
            self.make_forecasts();
            self.kernel.flush_log();
        }
    }

    /// Waits for records, requests, exits or the end of the period. It does not wait if there are
    /// requests left.
    fn wait(&mut self, are_questions: bool) -> Woken {
        let mut descriptors = vec![
            PollFd::new(&self.kernel.ring, PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.woken(), PollFlags::IN),
        ];
        // The guardian's descriptor is never read: it only hangs up.
        let guardian = self.kernel.attacher().guardian();
        descriptors.extend(guardian.map(|it| PollFd::from_borrowed_fd(it, PollFlags::empty())));
        let watched = self.watched();
        descriptors.extend(watched.iter().filter_map(|slot| {
            let pidfd = self.ingest.table.attached(*slot)?.process.as_ref()?.pidfd.as_fd();
            Some(PollFd::from_borrowed_fd(pidfd, PollFlags::IN))
        }));
        let mut period = if self.config.is_open() { OPEN_PERIOD } else { MAX_RECORD_DELAY };
        match self.process_events.pause() {
            Some(pause) => period = pause.min(period),
            None => {
                let events = self.process_events.descriptors();
                descriptors.extend(events.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
            }
        }
        if are_questions {
            period = Duration::ZERO;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: period.as_nanos() as i64 };
        // An interrupted poll is a short wait.
        let _ = poll(&mut descriptors, Some(&timeout));
        if !descriptors[WAKE].revents().is_empty() {
            self.shared.clear_wake();
        }
        let is_unguarded = guardian.is_some() && !descriptors[GUARDIAN].revents().is_empty();
        Woken { exited: self.ingest.gone(&watched), is_unguarded }
    }

    /// Slots of processes that may end now. Of many processes, only those are watched whose first
    /// thread is ending.
    fn watched(&self) -> Vec<u32> {
        match self.config.attach_mode {
            AttachMode::Pids => self.ingest.slots(),
            _ => self.leaving.clone(),
        }
    }

    pub(super) fn handle_events(&mut self) {
        for event in std::mem::take(&mut self.ingest.events) {
            match event {
                Event::Exec { slot, generation } => self.image_replaced(slot, generation),
                Event::ExpectedExec { pid } => self.expected_exec(pid),
                // The process may run our library, which must get its limit before it has sent
                // thousands of samples.
                Event::SamplesItself { slot } => self.ingest.inspect_again(slot),
                Event::LiveHigh => self.thin(),
                Event::Appeared { slot } => self.appeared(slot),
                Event::Leaving { slot } => self.watch_end(slot),
            }
        }
    }

    fn shut_down(&mut self) {
        self.shared.heartbeat.end();
        if let Some(injections) = self.injections.take() {
            injections.finish();
        }
        self.links.detach_all();
        self.links.wait_for_closing();
    }
}
