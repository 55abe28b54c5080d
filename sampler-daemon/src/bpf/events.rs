//! Process events from the kernel's side-band events: executable mappings, `execve`, forks and
//! exits of the whole machine, by perf_event_open(2).
//!
//! The events carry device and inode, not build ids (the kernel gives one or the other). Probes are
//! attached by inode, and `/proc/PID/maps` has nothing else to compare with.

use super::each_cpu::{EachCpu, online};
use anyhow::Context as _;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

/// Maximum bytes of the buffers of all CPUs that are online at the start.
const MAX_BUFFER_BYTES: usize = 16 << 20;
/// Bytes of one CPU's buffer: some 2,000 events, a hundred short programs.
const BUFFER_BYTES: usize = 256 << 10;
/// Minimum bytes of one CPU's buffer.
const MIN_BUFFER_BYTES: usize = 32 << 10;
/// Unread bytes at which a waiting daemon is woken: two or three events.
const WAKE_BYTES: usize = 256;

/// Bytes of the header of every record.
const HEADER_BYTES: usize = 8;
/// Maximum bytes of a record: a mapping of a file with the longest path.
const MAX_RECORD_BYTES: usize = 4096 + 128;

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMapping {
    /// First address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Inode, 0 if the mapping has no file.
    pub inode: u64,
    /// Distinguishes files that had the same inode number one after another.
    pub inode_generation: u64,
    /// Path in the process, or a name such as `[vdso]` or `//anon`.
    pub name: Vec<u8>,
}

/// The kind of a process event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Code was mapped, or existing memory became executable.
    Mapped(NewMapping),
    /// `execve`; the mappings of the new image follow.
    Exec,
    /// The process was forked (or vforked) from the process with this pid.
    Forked(u32),
    /// The first thread of the process has exited.
    LeaderExited,
    /// This number of events was lost here.
    Lost(u64),
}

/// An event of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Process; 0 for lost events.
    pub pid: u32,
    /// The kind of the event.
    pub what: EventKind,
}

/// Time between two checks which CPUs are online.
const CPUS_PAUSE: Duration = Duration::from_secs(1);
/// In every `CHECKS_PER_CPU_QUERY`th check, each CPU is asked whether it was offline since. The
/// question interrupts the CPU briefly. (When a machine sleeps, all CPUs but the first go offline
/// for a moment.)
const CHECKS_PER_CPU_QUERY: u32 = 10;

/// The events of all CPUs.
pub struct ProcessEvents {
    cpus: EachCpu<OnCpu>,
    buffer_bytes: usize,
    next_cpus: Instant,
    checks: u32,
    /// Whether the last attempt to open the events of a CPU was refused.
    is_refused: bool,
}

/// The events of one CPU.
struct OnCpu {
    sampler: Sampler,
    /// How long the events were enabled at the last check.
    last_enabled: Duration,
}

impl ProcessEvents {
    /// Opens the events of every process of the machine.
    ///
    /// # Errors
    /// If perf_event_open(2) refuses: without CAP_PERFMON, or where a seccomp filter forbids it.
    pub fn open() -> anyhow::Result<ProcessEvents> {
        let online = online()?;
        let bytes = (MAX_BUFFER_BYTES / online.len().max(1)).clamp(MIN_BUFFER_BYTES, BUFFER_BYTES);
        // The largest power of two that is not more.
        let bytes = 1 << bytes.ilog2();
        let mut cpus = EachCpu::new();
        cpus.follow(&online, &[], |cpu| on_cpu(cpu, bytes)).1?;
        let next_cpus = Instant::now() + CPUS_PAUSE;
        Ok(ProcessEvents { cpus, buffer_bytes: bytes, next_cpus, checks: 0, is_refused: false })
    }

    /// Opens the events of CPUs that have come online, or were offline for a while. Checks at most
    /// once in `CPUS_PAUSE`.
    /// Returns whether events of a CPU have just begun or ended, so that events may be missing.
    pub fn follow_cpus(&mut self) -> bool {
        if Instant::now() < self.next_cpus {
            return false;
        }
        self.next_cpus = Instant::now() + CPUS_PAUSE;
        self.checks += 1;
        let ended = match self.checks % CHECKS_PER_CPU_QUERY {
            0 => self.cpus.over(OnCpu::has_ended),
            _ => Vec::new(),
        };
        let bytes = self.buffer_bytes;
        let (changed, made) = match online() {
            Ok(online) => self.cpus.follow(&online, &ended, |cpu| on_cpu(cpu, bytes)),
            Err(error) => (0, Err(error)),
        };
        if changed > 0 {
            tracing::info!(changed, "events of CPUs that have come or gone");
        }
        // The warning is logged once, not once a second.
        let was_refused = mem::replace(&mut self.is_refused, made.is_err());
        if let Err(error) = made
            && !was_refused
        {
            tracing::warn!("what begins there is found a little later: {error:#}");
        }
        changed > 0
    }

    /// Passes all waiting events to `each`, of one CPU after the other. Returns whether a buffer
    /// was so full that events may have found no room. The kernel reports a loss only with the next
    /// event.
    pub fn drain(&mut self, mut each: impl FnMut(ProcessEvent)) -> bool {
        let mut was_full = false;
        for OnCpu { sampler, .. } in self.cpus.iter_mut() {
            let mut bytes = 0;
            while let Some(record) = sampler.next_record() {
                bytes += HEADER_BYTES + record.len();
                was_full |= bytes + MAX_RECORD_BYTES > self.buffer_bytes;
                if let Some(event) = parse(record.ty(), record.misc(), &record.to_contiguous()) {
                    each(event);
                }
            }
        }
        was_full
    }

    /// Descriptors that are readable when events wait.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        #[allow(unsafe_code, reason = "the crate hands out raw descriptors only")]
        self.cpus.iter().map(|OnCpu { sampler, .. }| {
            // SAFETY: the sampler keeps the descriptor open, and is borrowed for as long.
            unsafe { BorrowedFd::borrow_raw(sampler.as_raw_fd()) }
        })
    }
}

impl OnCpu {
    /// Whether the kernel has ended the events since the last check: the CPU was offline.
    fn has_ended(&mut self) -> bool {
        // An ended event has nothing to read any more.
        let read = self.sampler.as_counter_mut().read_full().ok();
        let enabled = read.and_then(|read| read.time_enabled()).unwrap_or(self.last_enabled);
        mem::replace(&mut self.last_enabled, enabled) == enabled
    }
}

fn on_cpu(cpu: u32, bytes: usize) -> anyhow::Result<OnCpu> {
    let sampler = sampler(cpu as usize, bytes);
    let sampler =
        sampler.with_context(|| format!("perf_event_open on CPU {cpu} for process events"))?;
    Ok(OnCpu { sampler, last_enabled: Duration::ZERO })
}

fn sampler(cpu: usize, bytes: usize) -> std::io::Result<Sampler> {
    let mut counter = Builder::new(Software::DUMMY)
        .any_pid()
        .one_cpu(cpu)
        .mmap(true)
        .mmap2(true)
        .comm(true)
        .comm_exec(true)
        .task(true)
        .sample(SampleFlag::TIME)
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(WAKE_BYTES)
        .build()?;
    counter.enable()?;
    counter.sampled(bytes)
}

/// Kinds of records (`enum perf_event_type` of `include/uapi/linux/perf_event.h`).
mod kind {
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const EXIT: u32 = 4;
    pub(super) const FORK: u32 = 7;
    pub(super) const MMAP2: u32 = 10;
}
/// `PERF_RECORD_MISC_COMM_EXEC`
const COMM_EXEC: u16 = 1 << 13;

/// Parses a record without its header; `None` if the record is not about a process.
fn parse(kind: u32, misc: u16, bytes: &[u8]) -> Option<ProcessEvent> {
    // The sample id behind every record consists of the time alone.
    let (body, time) = bytes.split_last_chunk::<8>()?;
    let time_ns = u64::from_ne_bytes(*time);
    let half = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u64::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    // In a pid namespace, the kernel writes 0 for processes outside of the namespace, and −1 for
    // some exiting processes.
    let is_ours = |pid| pid != 0 && pid != u32::MAX;
    let event = |pid, what| is_ours(pid).then_some(ProcessEvent { time_ns, pid, what });
    match kind {
        kind::MMAP2 => {
            let name = body.get(64..)?.split(|byte| *byte == 0).next()?;
            let (start, length) = (word(8)?, word(16)?);
            event(
                half(0)?,
                EventKind::Mapped(NewMapping {
                    start,
                    end: start.checked_add(length)?,
                    offset: word(24)?,
                    device: (half(32)?, half(36)?),
                    inode: word(40)?,
                    inode_generation: word(48)?,
                    name: name.to_vec(),
                }),
            )
        }
        kind::COMM if misc & COMM_EXEC != 0 => event(half(0)?, EventKind::Exec),
        kind::FORK => {
            let (pid, parent) = (half(0)?, half(4)?);
            // With the same pid, the child is a thread.
            if pid == parent { None } else { event(pid, EventKind::Forked(parent)) }
        }
        kind::EXIT => {
            let (pid, thread) = (half(0)?, half(8)?);
            if pid == thread { event(pid, EventKind::LeaderExited) } else { None }
        }
        kind::LOST => Some(ProcessEvent { time_ns, pid: 0, what: EventKind::Lost(word(8)?) }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(halves: &[u32], words: &[u64], name: &[u8], time: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = halves.iter().flat_map(|it| it.to_ne_bytes()).collect();
        bytes.extend(words.iter().flat_map(|it| it.to_ne_bytes()));
        bytes.extend(name);
        bytes.extend(time.to_ne_bytes());
        bytes
    }

    #[test]
    fn records_are_parsed() {
        let mut mapping = bytes(&[7, 8], &[0x1000, 0x2000, 0x3000], b"", 0);
        mapping.truncate(32);
        mapping.extend(bytes(&[8, 1, 5, 0, 6, 0, 5, 2], &[], b"/usr/lib/a.so\0\0\0", 99));
        let what = EventKind::Mapped(NewMapping {
            start: 0x1000,
            end: 0x3000,
            offset: 0x3000,
            device: (8, 1),
            inode: 5,
            inode_generation: 6,
            name: b"/usr/lib/a.so".to_vec(),
        });
        let event = ProcessEvent { time_ns: 99, pid: 7, what };
        assert_eq!(parse(kind::MMAP2, 0, &mapping), Some(event));

        let fork = |pid, parent| bytes(&[pid, parent, 11, 12], &[98], b"", 98);
        let of = |pid, what| Some(ProcessEvent { time_ns: 98, pid, what });
        assert_eq!(parse(kind::FORK, 0, &fork(9, 7)), of(9, EventKind::Forked(7)));
        assert_eq!(parse(kind::FORK, 0, &fork(9, 9)), None);
        assert_eq!(parse(kind::EXIT, 0, &fork(11, 7)), of(11, EventKind::LeaderExited));
        assert_eq!(parse(kind::EXIT, 0, &fork(9, 7)), None);

        let comm = bytes(&[7, 7], &[], b"name\0\0\0\0", 98);
        assert_eq!(parse(kind::COMM, COMM_EXEC, &comm), of(7, EventKind::Exec));
        assert_eq!(parse(kind::COMM, 0, &comm), None);
        assert_eq!(parse(kind::LOST, 0, &bytes(&[], &[1, 5], b"", 98)), of(0, EventKind::Lost(5)));
    }

    #[test]
    fn short_records_are_not_parsed() {
        for kind in 0..12 {
            // The shortest record is a pid and the time.
            for length in 0..12 {
                assert_eq!(parse(kind, COMM_EXEC, &vec![0xff; length]), None, "{kind} {length}");
            }
        }
    }
}
