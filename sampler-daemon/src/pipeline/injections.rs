//! `--inject` where processes come by themselves (`--follow`, `--inject-only`): the in-process sampler is put into each as it is found.
//!
//! An injection takes tens of milliseconds. A thread of its own makes them one by one, and the worker goes on. What a process allocates before it is
//! injected is not seen, and the process is listed as blind until then. What it forks later has the sampler from its first allocation on.

use super::facts::Facts;
use super::worker::Worker;
use crate::injector::Injector;
use crate::inspect::discovery::Discovery;
use crate::inspect::mappings::{self, Backing, Mapping};
use crate::store::Criterion;
use rustc_hash::FxHashMap;
use sampler_common::units;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Processes that wait for the thread, at most; what does not fit is asked for again at its next look.
const QUEUE: usize = 1024;

/// How to inject processes that come by themselves.
#[derive(Clone, Debug)]
pub struct Injecting {
    /// Who does it.
    pub injector: Injector,
    /// The interval that the sampler begins with.
    pub interval_bytes: u64,
    /// Which processes; empty: all of the tree.
    pub only: Vec<Criterion>,
}

/// A program image of a process: the inode of its first mapping, and where the vDSO lies, for which `execve` chooses another place.
type ProgramImage = (u64, u64);

/// An injection to be made, and then what has become of it.
struct Injection<Result = ()> {
    pid: u32,
    program: ProgramImage,
    result: Result,
}

/// What is known of a program image.
enum State {
    Waiting,
    In,
    Refused(String),
    /// The process ended first.
    Missed,
}

/// Injections that were made, and those that are to come.
pub(super) struct Injections {
    only: Vec<Criterion>,
    requests: mpsc::SyncSender<Injection>,
    results: mpsc::Receiver<Injection<Result<String, String>>>,
    states: FxHashMap<u32, (ProgramImage, State)>,
    /// Processes that ended before the sampler was in them.
    missed: u64,
    thread: JoinHandle<()>,
}

impl Injections {
    /// Starts the thread. It writes to `wake` when there is a result.
    pub(super) fn start(injecting: Injecting, wake: Arc<OwnedFd>) -> std::io::Result<Injections> {
        let Injecting { injector, interval_bytes, only } = injecting;
        let (requests, received) = mpsc::sync_channel::<Injection>(QUEUE);
        let (sender, results) = mpsc::channel();
        let thread = std::thread::Builder::new().name("inject".into()).spawn(move || {
            for Injection { pid, program, .. } in received {
                let result = injector.inject(pid, interval_bytes);
                if sender.send(Injection { pid, program, result }).is_err() {
                    return;
                }
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            }
        })?;
        Ok(Injections { only, requests, results, states: FxHashMap::default(), missed: 0, thread })
    }

    /// Waits for the injection that is being made; those that wait are not made.
    pub(super) fn finish(self) {
        let Injections { requests, results, thread, .. } = self;
        drop((requests, results));
        // One that has panicked makes none any more.
        let _ = thread.join();
    }

    /// Forgets processes that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.states.retain(|pid, _| is_there(*pid));
    }

    /// A process has ended that was to be looked at, or to be injected.
    pub(super) fn note_missed(&mut self, pid: u32) {
        let is_known = |of: &(ProgramImage, State)| matches!(of.1, State::In | State::Missed);
        if !self.states.get(&pid).is_some_and(is_known) {
            self.states.insert(pid, (ProgramImage::default(), State::Missed));
            self.missed += 1;
        }
    }

    /// What is to be said of processes that were not injected.
    pub(super) fn limits(&self) -> Option<String> {
        let missed = units::grouped(self.missed);
        (self.missed > 0).then(|| {
            format!("processes that ended before the sampler was in them: {missed}; nothing is seen of these (--inject)")
        })
    }

    /// Has a program image injected, unless that was asked for before; why its allocations are not seen.
    fn request(&mut self, pid: u32, program: ProgramImage) -> String {
        let known = self.states.get(&pid).filter(|(of, _)| *of == program);
        if let Some((_, State::Refused(why))) = known {
            return format!("--inject: {why}: none of its allocations are seen");
        }
        if known.is_none() {
            let request = Injection { pid, program, result: () };
            if self.requests.try_send(request).is_ok() {
                self.states.insert(pid, (program, State::Waiting));
            }
        }
        "is not injected yet (--inject): none of its allocations are seen".to_owned()
    }
}

fn program_image(mappings: &[Mapping]) -> ProgramImage {
    let vdso = mappings.iter().find(|of| of.backing == Backing::Vdso);
    (mappings.first().map_or(0, |of| of.inode), vdso.map_or(0, |of| of.start))
}

impl Worker {
    /// Has a process injected that does not sample its allocations, if it is one of those that are to be.
    pub(super) fn request_injection(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        discovery: &mut Discovery,
    ) {
        let Some(injections) = &mut self.injections else { return };
        if !discovery.samplers.is_empty() {
            return;
        }
        let facts = Facts::of(pid);
        let who = facts.who(pid);
        if self.excluded.by(who).is_some() {
            return;
        }
        let mut only = injections.only.iter();
        if !injections.only.is_empty() && !only.any(|criterion| criterion.matches(who)) {
            discovery.blind = vec!["not chosen by --inject-only".into()];
            return;
        }
        discovery.blind = vec![injections.request(pid, program_image(mappings)).into()];
        discovery.has_unseen_allocations = true;
    }

    /// Looks again at processes that were injected, or refused.
    pub(super) fn look_at_injected(&mut self) {
        loop {
            let Some(injections) = &mut self.injections else { return };
            let Ok(Injection { pid, program, result }) = injections.results.try_recv() else {
                return;
            };
            let state = match result {
                Ok(line) => {
                    tracing::info!(pid, "the sampler is in: {line}");
                    State::In
                }
                Err(_) if mappings::read_some(pid).is_err() => {
                    injections.note_missed(pid);
                    continue;
                }
                Err(why) => {
                    tracing::info!(pid, "not injected: {why}");
                    State::Refused(why)
                }
            };
            injections.states.insert(pid, (program, state));
            match self.ingest.table.attached_slot(pid) {
                Some(slot) => {
                    if let Some(attached) = self.ingest.table.attached_mut(slot) {
                        attached.look_at_all_again();
                    }
                }
                None => self.look_at(pid),
            }
        }
    }
}
