//! Process events from the kernel: images are built from them, and allocators are found by them.

use crate::bpf::events::{EventKind, NewMapping, ProcessEvent, ProcessEvents};
use crate::inspect::mappings::inspected_files::InspectedFiles;
use crate::inspect::mappings::{self, Mapping};
use crate::pipeline::clock::monotonic_ns;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::unwind::History;
use std::time::{Duration, Instant};

/// Least time between two wake-ups of the worker for events: a new process makes about thirty.
const MIN_WAKE_PERIOD: Duration = Duration::from_millis(3);

/// The events, and their effects.
#[derive(Default)]
pub(in crate::pipeline) struct ProcessEventQueue {
    /// `None` where processes do not appear by themselves, or the kernel refuses.
    events: Option<ProcessEvents>,
    /// Events later than the last reading. They wait to be sorted by time among others.
    waiting: Vec<ProcessEvent>,
    files: InspectedFiles,
    last: Option<Instant>,
    read: u64,
    lost: u64,
}

/// Counts for `status`.
#[derive(Clone, Copy, Debug)]
pub struct EventCounts {
    /// Events read.
    pub read: u64,
    /// Events that found no room in their buffer.
    pub lost: u64,
    /// Program images given up at a bound.
    pub images_refused: u64,
    /// Mapped files that could not be inspected at once.
    pub files_missed: u64,
}

impl ProcessEventQueue {
    /// Opens the events. No later event is missed.
    pub(in crate::pipeline) fn open() -> ProcessEventQueue {
        match ProcessEvents::open() {
            Ok(events) => {
                ProcessEventQueue { events: Some(events), ..ProcessEventQueue::default() }
            }
            Err(error) => {
                tracing::warn!("{error:#}: new allocators are found by looking once a second");
                ProcessEventQueue::default()
            }
        }
    }

    pub(in crate::pipeline) fn is_open(&self) -> bool {
        self.events.is_some()
    }

    /// The counts; `None` if events are not open.
    pub(in crate::pipeline) fn counts(&self, history: &History) -> Option<EventCounts> {
        self.events.as_ref()?;
        Some(EventCounts {
            read: self.read,
            lost: self.lost,
            images_refused: history.refused(),
            files_missed: self.files.missed(),
        })
    }

    pub(in crate::pipeline) fn files(&mut self) -> &mut InspectedFiles {
        &mut self.files
    }

    /// How long events are not polled after the last reading; 0 if files wait to be inspected.
    pub(in crate::pipeline) fn pause(&self) -> Option<Duration> {
        if self.files.is_waiting() {
            return Some(Duration::ZERO);
        }
        MIN_WAKE_PERIOD.checked_sub(self.last?.elapsed())
    }

    /// Descriptors to poll.
    pub(in crate::pipeline) fn descriptors(
        &self,
    ) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.events.iter().flat_map(ProcessEvents::descriptors)
    }

    /// Returns all events before this call, in their order.
    fn take(&mut self) -> Vec<ProcessEvent> {
        let Some(events) = &mut self.events else { return Vec::new() };
        let now_ns = monotonic_ns();
        let was_full = events.drain(|event| self.waiting.push(event));
        // After the events that a CPU had reported before it went offline.
        let has_missed_cpu = events.follow_cpus();
        if self.waiting.is_empty() && !has_missed_cpu {
            return Vec::new();
        }
        self.last = Some(Instant::now());
        // The events of one CPU may be later than events that another CPU has yet to report.
        self.waiting.sort_by_key(|event| event.time_ns);
        let later = self.waiting.partition_point(|event| event.time_ns <= now_ns);
        let later = self.waiting.split_off(later);
        let mut taken = std::mem::replace(&mut self.waiting, later);
        self.read += taken.len() as u64;
        if was_full || has_missed_cpu {
            // The kernel reports the number later, or never.
            taken.push(ProcessEvent { time_ns: now_ns, pid: 0, what: EventKind::Lost(0) });
        }
        taken
    }
}

impl Worker {
    /// Handles the events up to now. Runs before records are read that were in the ring before, so
    /// that their images are known.
    pub(in crate::pipeline) fn take_events(&mut self) {
        for event in self.process_events.take() {
            self.handle_event(event);
        }
        self.look_into_files();
    }

    fn handle_event(&mut self, event: ProcessEvent) {
        // Events of processes outside the tree are dropped, and their files are not inspected.
        if self.config.is_tree() && !self.concerns_tree(&event) {
            return;
        }
        let ProcessEvent { time_ns, pid, what } = event;
        let history = &mut self.ingest.history;
        match what {
            EventKind::Mapped(new) => {
                let mapping = mapping(&new);
                let parent = history.at(pid, time_ns).map_or(0, |image| image.parent);
                if pid != std::process::id() {
                    self.file_mapped(pid, parent, &mapping, new.inode_generation);
                }
                let is_go =
                    self.process_events.files.has_go_program(std::slice::from_ref(&mapping));
                self.ingest.history.mapped(time_ns, pid, mapping);
                if is_go {
                    self.mapped_go_program(pid);
                }
            }
            EventKind::Exec => history.replaced(time_ns, pid),
            EventKind::Forked(parent) => {
                history.forked(time_ns, pid, parent, || mappings::executable(parent));
            }
            EventKind::LeaderExited => {
                history.exited(time_ns, pid);
                self.look_at_refused();
            }
            EventKind::Lost(count) => {
                // It is unknown which events were lost: images are read from `/proc` from now on,
                // and a survey finds new allocators.
                self.process_events.lost += count;
                history.clear();
                self.survey.timer.repair();
            }
        }
    }

    /// Inspects a newly mapped file soon. Files of an excluded process need no probes, except in a
    /// tree: children of the excluded process are profiled and map the same files.
    fn file_mapped(&mut self, pid: u32, parent: u32, mapping: &Mapping, generation: u64) {
        if !self.config.is_tree() {
            let is_new = !self.process_events.files.has(mapping, generation);
            if self.excluded.has(pid) || is_new && self.is_excluded(pid) {
                return;
            }
        }
        let known = self.process_events.files.mapped(pid, parent, mapping, generation);
        let is_allocator = !known.is_empty();
        for known in known {
            self.links.shared.mapped(known.identity);
        }
        if is_allocator {
            self.ingest.look_soon(pid);
        }
    }

    fn look_into_files(&mut self) {
        for found in self.process_events.files.search_waiting(&mut self.discoverer) {
            self.attach_found(found.pid, &found.contents);
            if found.contents.files().next().is_some() {
                self.ingest.look_soon(found.pid);
            }
            if found.contents.is_go_program {
                self.mapped_go_program(found.pid);
            }
            self.ingest.modules.remember_file(&found.mapping, found.file);
        }
    }
}

impl Ingest {
    /// Inspects a process soon that has a new allocator.
    fn look_soon(&mut self, pid: u32) {
        for (_, attached) in self.table.all_attached_mut().filter(|(of, _)| *of == pid) {
            attached.timer.inspect_now();
        }
    }
}

fn mapping(new: &NewMapping) -> Mapping {
    Mapping {
        start: new.start,
        end: new.end,
        offset: new.offset,
        executable: true,
        device: (new.device.0 as i32, new.device.1 as i32),
        inode: new.inode,
        backing: mappings::backing_of_event(&new.name, new.inode),
    }
}
