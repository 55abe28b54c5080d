//! `--inject` where processes appear by themselves (`--follow`, `--inject-only`): each found
//! process is injected.
//!
//! An injection takes tens of milliseconds. A separate thread makes the injections one by one while
//! the worker goes on.
//! Allocations before the injection are not seen, and the process is listed as blind until then.
//! Its later children have the sampler from their first allocation on.

use crate::injector::Injector;
use crate::inspect::discovery::Discovery;
use crate::inspect::hazard::is_go;
use crate::inspect::mappings::{self, Backing, Mapping};
use crate::pipeline::command::Shared;
use crate::pipeline::processes::facts::Facts;
use crate::pipeline::worker::Worker;
use crate::store::Criterion;
use rustc_hash::FxHashMap;
use sampler_common::units;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Processes that wait for the thread, at most. Further ones are requested again at their next
/// inspection.
const QUEUE: usize = 1024;

/// How to inject newly appeared processes.
#[derive(Clone, Debug)]
pub struct Injecting {
    /// The injector.
    pub injector: Injector,
    /// The initial interval of the sampler.
    pub interval_bytes: u64,
    /// Which processes; empty: all processes of the tree.
    pub only: Vec<Criterion>,
}

/// A program image of a process: the inode of its first mapping, and the address of the vDSO, which
/// every `execve` chooses anew.
type ProgramImage = (u64, u64);

/// A requested injection, or its result.
struct Injection<Result = ()> {
    pid: u32,
    program: ProgramImage,
    result: Result,
}

/// State of a program image.
enum State {
    Waiting,
    In,
    Refused(String),
    /// The process ended before its injection.
    Missed,
}

/// Results of injections, and pending ones.
pub(in crate::pipeline) struct Injections {
    only: Vec<Criterion>,
    requests: mpsc::SyncSender<Injection>,
    results: mpsc::Receiver<Injection<Result<String, String>>>,
    states: FxHashMap<u32, (ProgramImage, State)>,
    /// Processes that ended before their injection.
    missed: u64,
    thread: JoinHandle<()>,
}

impl Injections {
    /// Starts the thread. It wakes the worker when there is a result.
    pub(in crate::pipeline) fn start(
        injecting: Injecting,
        worker: Arc<Shared>,
    ) -> std::io::Result<Injections> {
        let Injecting { injector, interval_bytes, only } = injecting;
        let (requests, received) = mpsc::sync_channel::<Injection>(QUEUE);
        let (sender, results) = mpsc::channel();
        let thread = std::thread::Builder::new().name("inject".into()).spawn(move || {
            for Injection { pid, program, .. } in received {
                let result = injector.inject(pid, interval_bytes);
                if sender.send(Injection { pid, program, result }).is_err() {
                    return;
                }
                worker.wake();
            }
        })?;
        Ok(Injections { only, requests, results, states: FxHashMap::default(), missed: 0, thread })
    }

    /// Waits for the current injection; waiting injections are dropped.
    pub(in crate::pipeline) fn finish(self) {
        let Injections { requests, results, thread, .. } = self;
        drop((requests, results));
        // A thread that has panicked injects nothing any more.
        let _ = thread.join();
    }

    /// Forgets processes that are gone.
    pub(in crate::pipeline) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.states.retain(|pid, _| is_there(*pid));
    }

    /// Counts a process that has ended before it could be inspected or injected.
    pub(in crate::pipeline) fn note_missed(&mut self, pid: u32) {
        let is_known = |of: &(ProgramImage, State)| matches!(of.1, State::In | State::Missed);
        if !self.states.get(&pid).is_some_and(is_known) {
            self.states.insert(pid, (ProgramImage::default(), State::Missed));
            self.missed += 1;
        }
    }

    /// The limitation to report for processes that were not injected.
    pub(in crate::pipeline) fn limits(&self) -> Option<String> {
        let missed = units::grouped(self.missed);
        (self.missed > 0).then(|| {
            format!("processes that ended before the sampler was in them: {missed}; nothing is seen of these (--inject)")
        })
    }

    /// Requests the injection of a program image, unless it was requested before. Returns why the
    /// image's allocations are not seen.
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
    /// Requests the injection of a process that does not sample its allocations, if the process is
    /// selected for injection. Until then, its allocations are reported as unseen.
    pub(in crate::pipeline) fn request_injection(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        discovery: &mut Discovery,
    ) {
        let Some(injections) = &mut self.injections else { return };
        let facts = Facts::of(pid);
        let who = facts.who(pid);
        if self.excluded.by(who).is_some() {
            return;
        }
        let mut only = injections.only.iter();
        if !injections.only.is_empty() && !only.any(|criterion| criterion.matches(who)) {
            discovery.blind_spots = vec!["not chosen by --inject-only".into()];
            return;
        }
        // Such a process is refused: it must not be changed before.
        if is_go(pid) {
            return;
        }
        discovery.blind_spots = vec![injections.request(pid, program_image(mappings)).into()];
        discovery.has_unseen_allocations = true;
    }

    /// Inspects processes again whose injection has succeeded or failed.
    pub(in crate::pipeline) fn inspect_injected(&mut self) {
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
                        attached.inspect_all_again();
                    }
                }
                None => self.look_at(pid),
            }
        }
    }
}
