//! The system calls of samplerd, by who makes them: the worker in an answer, the worker between
//! answers, or another thread.
//!
//! bpftrace counts them. A uprobe on the function that answers marks the worker, and its return
//! probe removes the mark. samplerd writes memory that it shares with its eBPF programs without a
//! call: only the compiler checks that.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::{Child, finish};
use sampler_tests::{Daemon, build, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Part of the symbol of `Worker::answer`; a hash follows it.
const ANSWER: &str = "pipeline..worker..Worker$GT$6answer17h";

/// `bpf_cmd` of `include/uapi/linux/bpf.h`.
pub(crate) mod bpf {
    pub(crate) const MAP_LOOKUP_ELEM: i64 = 1;
    pub(crate) const MAP_UPDATE_ELEM: i64 = 2;
    pub(crate) const MAP_GET_NEXT_KEY: i64 = 4;
    pub(crate) const MAP_LOOKUP_AND_DELETE_ELEM: i64 = 21;
    pub(crate) const MAP_LOOKUP_BATCH: i64 = 24;
    pub(crate) const LINK_CREATE: i64 = 28;
}

/// `uretprobe` of Linux 6.11: the return probe of this test makes it. The libc crate does not have
/// it.
const SYS_URETPROBE: i64 = 335;

/// The thread or process that makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// The worker, in an answer.
    Answer,
    /// The worker, between answers.
    Loop,
    /// Another thread of samplerd: it takes questions or makes intervals.
    Edge,
    /// The probe guardian.
    Guardian,
    /// The thread that symbolizes frames: it starts and ends the parser, and hands files to the
    /// parser.
    Names,
}

/// A system call: its number, and the field of [`script`] that distinguishes reading from writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call(pub(crate) i64, pub(crate) i64);

/// bpftrace on a daemon.
pub(crate) struct Trace {
    child: Child,
    daemon: u32,
    /// Answers before counting began.
    before: u64,
}

/// The calls that bpftrace has counted.
pub(crate) struct Calls {
    /// Number of answers.
    pub(crate) answers: u64,
    counts: BTreeMap<(Caller, Call), u64>,
    /// Descriptors of samplerd that are eventfds.
    eventfds: BTreeSet<i64>,
}

impl Trace {
    /// Starts bpftrace, and asks for the status until bpftrace's return probe has hit an answer.
    pub(crate) fn start(daemon: &Daemon) -> Result<Trace> {
        mount_tracefs()?;
        let mut command = Command::new("bpftrace");
        command.args(["-B", "line", "-e", &script(daemon)?]).stderr(Stdio::null());
        let child = Child::start("bpftrace", &mut command)?;
        let mut trace = Trace { child, daemon: daemon.pid(), before: 0 };
        trace.before = wait::until("bpftrace to see an answer", || {
            daemon.status()?;
            let answers = trace.number("answers ")?;
            Ok((answers > 0).then_some(answers))
        })?;
        Ok(trace)
    }

    /// Ends bpftrace. samplerd must still run, because its descriptors are read.
    pub(crate) fn finish(mut self) -> Result<Calls> {
        let eventfds = eventfds(self.daemon)?;
        self.child.signal(2)?;
        let answers = self.number("all ")? - self.before;
        let mut counts = BTreeMap::new();
        loop {
            let line = self.child.line()?;
            if line == "end" {
                return Ok(Calls { answers, counts, eventfds });
            }
            if let Some((key, count)) = entry(&line) {
                counts.insert(key, count);
            }
        }
    }

    /// The next number that follows `beginning`.
    fn number(&mut self, beginning: &str) -> Result<u64> {
        loop {
            let line = self.child.line()?;
            if let Some(number) = line.strip_prefix(beginning) {
                return number.parse().with_context(|| line.clone());
            }
        }
    }
}

impl Calls {
    /// How often the caller has made this call.
    pub(crate) fn count(&self, caller: Caller, number: i64, what: i64) -> u64 {
        self.counts.get(&(caller, Call(number, what))).copied().unwrap_or(0)
    }

    /// Fails if an answer has made a call that is not known to only read. Threads other than the
    /// worker may do more. They may not change probes, maps or processes.
    pub(crate) fn check_answers_only_read(&self) -> Result<()> {
        for ((caller, call), count) in &self.counts {
            let is_allowed = match caller {
                Caller::Answer => self.reads(*call),
                Caller::Edge => !is_change(*call),
                Caller::Names => {
                    // The thread starts the parser, whose output goes to /dev/null. The thread also
                    // hands files to the parser, and ends it.
                    let is_output = *call == Call(libc::SYS_openat, libc::O_WRONLY.into());
                    let is_parser = [libc::SYS_sendmsg, libc::SYS_kill].contains(&call.0);
                    !is_change(*call) || is_output || is_parser
                }
                Caller::Loop | Caller::Guardian => true,
            };
            ensure!(is_allowed, "{caller:?} has made {call:?} {count} times\n{self}");
        }
        Ok(())
    }

    /// Whether a call only reads files or maps, or belongs to samplerd's allocator or locks.
    fn reads(&self, Call(number, what): Call) -> bool {
        match number {
            libc::SYS_bpf => {
                [bpf::MAP_LOOKUP_ELEM, bpf::MAP_GET_NEXT_KEY, bpf::MAP_LOOKUP_BATCH].contains(&what)
            }
            libc::SYS_openat => what == i64::from(libc::O_RDONLY),
            // The answer has opened this file itself; another descriptor might be a link.
            libc::SYS_close => what == 1,
            // The write wakes the thread that has asked.
            libc::SYS_write => self.eventfds.contains(&what),
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_lseek | libc::SYS_readlink => true,
            libc::SYS_statx | libc::SYS_fstat | libc::SYS_newfstatat => true,
            libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => true,
            libc::SYS_mremap | libc::SYS_brk => true,
            libc::SYS_futex | libc::SYS_sched_yield | libc::SYS_clock_gettime => true,
            _ => number == SYS_URETPROBE,
        }
    }
}

impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} answers", self.answers)?;
        for ((caller, Call(number, what)), count) in &self.counts {
            writeln!(f, "{caller:?}: call {number} ({what}): {count}")?;
        }
        Ok(())
    }
}

/// Descriptors of a process that are eventfds.
fn eventfds(pid: u32) -> Result<BTreeSet<i64>> {
    let directory = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&directory).with_context(|| format!("list {directory}"))?;
    let descriptors = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let file = fs::read_link(&path).ok()?;
        (file.as_os_str() == "anon_inode:[eventfd]").then_some(())?;
        path.file_name()?.to_str()?.parse().ok()
    });
    Ok(descriptors.collect())
}

/// Whether a call may change probes, maps or another process.
fn is_change(Call(number, what): Call) -> bool {
    match number {
        libc::SYS_openat => what != i64::from(libc::O_RDONLY),
        libc::SYS_bpf | libc::SYS_perf_event_open | libc::SYS_ioctl => true,
        libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2 => true,
        libc::SYS_process_vm_writev | libc::SYS_ptrace => true,
        libc::SYS_kill | libc::SYS_tgkill | libc::SYS_pidfd_send_signal => true,
        // Requests to the guardian.
        libc::SYS_sendmsg => true,
        _ => false,
    }
}

/// bpftrace finds tracepoints in tracefs, which not every machine mounts.
fn mount_tracefs() -> Result<()> {
    let directory = "/sys/kernel/tracing";
    if !Path::new(directory).join("events").exists() {
        let arguments = ["-t", "tracefs", "nodev", directory];
        finish(Command::new("mount").args(arguments))?.success("mount tracefs")?;
    }
    Ok(())
}

/// The script of bpftrace. `$what` is the command of bpf(2), the access mode of openat(2), the
/// descriptor of write(2), and for close(2) whether the same answer has opened the descriptor.
fn script(daemon: &Daemon) -> Result<String> {
    let program = build::program("samplerd")?;
    let listed = finish(Command::new("nm").arg(&program))?.success("nm")?;
    let listed = String::from_utf8(listed.stdout)?;
    let symbols = listed.lines().filter_map(|line| line.split(' ').nth(2));
    let found: Vec<&str> = symbols.filter(|symbol| symbol.contains(ANSWER)).collect();
    let [symbol] = found[..] else { anyhow::bail!("one symbol of {ANSWER}: {found:?}") };
    let (program, samplerd, guardian) = (program.display(), daemon.pid(), daemon.guardian()?);
    let (bpf, openat, write, close) =
        (libc::SYS_bpf, libc::SYS_openat, libc::SYS_write, libc::SYS_close);
    // bpftrace attaches one probe after the other: the entry marks nothing before the return probe
    // works.
    Ok(format!(
        r#"
uretprobe:{program}:"{symbol}" /pid == {samplerd}/ {{
    delete(@answering[tid]);
    @answers += 1;
}}
tracepoint:syscalls:sys_exit_openat /@answering[tid] && args->ret >= 0/ {{
    @opened[args->ret] = @answers;
}}
tracepoint:raw_syscalls:sys_enter /pid == {samplerd} || pid == {guardian}/ {{
    $who = pid == {guardian} ? 3 : @answering[tid] ? 0 : comm == "worker" ? 1 : comm == "symbolizer" ? 4 : 2;
    $number = args->id;
    $what = (uint64)0;
    if ($number == {bpf}) {{ $what = args->args[0]; }}
    if ($number == {openat}) {{ $what = args->args[2] & 3; }}
    if ($number == {write} && $who == 0) {{ $what = args->args[0]; }}
    if ($number == {close} && $who == 0) {{
        $what = (uint64)(@opened[args->args[0]] == @answers ? 1 : 0);
        delete(@opened[args->args[0]]);
    }}
    @calls[$who, $number, $what] = count();
}}
uprobe:{program}:"{symbol}" /pid == {samplerd} && @answers/ {{ @answering[tid] = 1; }}
interval:ms:50 {{ printf("answers %d\n", @answers); }}
END {{
    printf("all %d\n", @answers);
    print(@calls);
    clear(@calls); clear(@answering); clear(@opened); clear(@answers);
    printf("end\n");
}}
"#
    ))
}

/// `@calls[WHO, NUMBER, WHAT]: COUNT`
fn entry(line: &str) -> Option<((Caller, Call), u64)> {
    let (key, count) = line.strip_prefix("@calls[")?.split_once("]: ")?;
    let key: Vec<i64> = key.split(", ").filter_map(|number| number.parse().ok()).collect();
    let [who, number, what] = key[..] else { return None };
    let callers = [Caller::Answer, Caller::Loop, Caller::Edge, Caller::Guardian, Caller::Names];
    let caller = *callers.get(usize::try_from(who).ok()?)?;
    Some(((caller, Call(number, what)), count.parse().ok()?))
}
