//! The event loop of the worker: it waits, reads the ring, acts on what has happened, and answers questions.
//!
//! The order of a turn's steps matters; each step says why it stands where it stands.

use super::config::AttachMode;
use super::ingest::Event;
use super::worker::Worker;
use anyhow::bail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

/// Records read between two looks at commands and processes.
pub(super) const BATCH: usize = 1024;
/// Place of the eventfd among what is waited for.
const WAKE: usize = 1;
/// The same of what hangs up when the guardian ends.
const GUARDIAN: usize = 2;
/// How long records may wait in the ring when few arrive (many wake the worker).
const MAX_RECORD_DELAY: Duration = Duration::from_millis(100);
/// The same where processes come and go: what is known of a short one must be read soon.
const OPEN_PERIOD: Duration = Duration::from_millis(20);
/// Said when nothing can be seen any more.
const NO_GUARDIAN: &str = "the probe guardian has ended, and every probe with it: nothing is profiled any more (start samplerd again)";

/// Lets this thread run as soon as there is something to do: while it waits for a CPU, programs go on paying for probes that are to go.
fn raise_thread_priority() {
    const FIRST: i32 = -15;
    let me = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(me), FIRST) {
        tracing::warn!("run ahead of others: {error}");
    }
}

impl Worker {
    /// Turns until it is asked to stop; an error if nothing can be seen any more.
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        if self.config.windows.is_some() {
            raise_thread_priority();
        }
        let mut are_more = false;
        loop {
            self.heartbeat.beat();
            let exited = self.wait(are_more);
            if self.is_unguarded {
                self.shut_down();
                bail!("{NO_GUARDIAN}");
            }
            // First: programs pay for each call while a window is open.
            self.open_and_end_windows();
            // Before the ring is read: how full it was says what the next turn needs.
            self.note_ring_fill();
            self.read(BATCH);
            // By what has just been read, and before anything that takes long.
            self.control_pressure();
            self.handle_events();
            // Behind the events: the end of a process may be among them, and its slot another's by now.
            self.detach_gone(&exited);
            // Behind all that has happened: an answer contains whatever returned before its question.
            are_more = match self.answer_some() {
                ControlFlow::Continue(are_more) => are_more,
                ControlFlow::Break(()) => {
                    self.shut_down();
                    return Ok(());
                }
            };
            // What may wait for a turn, each by its own time.
            self.look_at_due_processes();
            self.look_at_injected();
            self.survey();
            self.look_at_new_images();
            self.maintain_store();
            self.adapt_sampling();
            self.measure_due_prices();
            self.make_forecasts();
            self.kernel.flush_log();
        }
    }

    /// Waits for records, questions, exits or the period's end, or only looks if there are questions left; slots whose process has exited.
    fn wait(&mut self, are_questions: bool) -> Vec<u32> {
        let mut descriptors = vec![
            PollFd::new(&self.kernel.ring, PollFlags::IN),
            PollFd::new(&*self.wake, PollFlags::IN),
        ];
        // Nothing is read from it: it only hangs up.
        let guardian = self.kernel.attacher().guardian();
        descriptors.extend(guardian.map(|it| PollFd::from_borrowed_fd(it, PollFlags::empty())));
        let watched = self.watched();
        descriptors.extend(watched.iter().filter_map(|slot| {
            let pidfd = self.ingest.table.attached(*slot)?.process.as_ref()?.pidfd.as_fd();
            Some(PollFd::from_borrowed_fd(pidfd, PollFlags::IN))
        }));
        let mut period = if self.is_open() { OPEN_PERIOD } else { MAX_RECORD_DELAY };
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
        // An interrupted wait is a short one.
        let _ = poll(&mut descriptors, Some(&timeout));
        if !descriptors[WAKE].revents().is_empty() {
            let mut counter = [0u8; 8];
            let _ = rustix::io::read(&*self.wake, &mut counter);
        }
        self.is_unguarded = guardian.is_some() && !descriptors[GUARDIAN].revents().is_empty();
        self.gone(&watched)
    }

    /// Slots of those that may end now; of many processes only those whose first thread is going.
    fn watched(&self) -> Vec<u32> {
        match self.config.attach_mode {
            AttachMode::Pids => self.slots(),
            _ => self.leaving.clone(),
        }
    }

    pub(super) fn handle_events(&mut self) {
        for event in std::mem::take(&mut self.ingest.events) {
            match event {
                Event::Exec { slot, generation } => self.image_replaced(slot, generation),
                Event::ExpectedExec { pid } => self.expected_exec(pid),
                // What does so may be our library, which is to hear of its limit before it has sent thousands.
                Event::SamplesItself { slot } => self.look_again(slot),
                Event::LiveHigh => self.thin(),
                Event::Appeared { slot } => self.appeared(slot),
                Event::Leaving { slot } => self.watch_end(slot),
            }
        }
    }

    fn shut_down(&mut self) {
        self.heartbeat.end();
        if let Some(injections) = self.injections.take() {
            injections.finish();
        }
        self.links.detach_all();
        let links = self.prices.take_links();
        self.links.close(links);
        self.links.wait_for_closing();
    }
}
