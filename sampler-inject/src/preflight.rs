//! Reasons to leave a process alone, found before anything is changed.

use crate::allocator::Allocators;
use crate::calls::{self, Call, StubPlace};
use crate::filter::{self, Verdict};
use crate::image::{THREAD_BYTES, THREAD_OFFSET};
use crate::kernel::{self, Tid};
use crate::maps::{Mapping, Maps, PAGE_BYTES};
use crate::memory::Memory;
use crate::record::{self, Remains};
use crate::stop::{self, Stopped};
use crate::target::{Loaded, Target};
use anyhow::{Context, Result};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::Read as _;

/// Why a process is left alone. Each reason is one line with its remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says what it is")]
pub enum Refusal {
    #[error("there is no such process")]
    NoProcess,
    #[error("it is a kernel thread, which has no allocator")]
    KernelThread,
    #[error(
        "no right to change its memory (needs CAP_SYS_PTRACE and CAP_SYS_ADMIN: run as root): {error}"
    )]
    NoRight { error: std::io::Error },
    #[error("it is a program of 32 bits; only x86-64 is supported (profile it with uprobes)")]
    Not64Bits,
    #[error("process {tracer} traces it (a debugger or strace: end that first)")]
    Traced { tracer: i32 },
    #[error(
        "it does not stop: a thread waits for a vfork child, a disk or a network file system (try again later)"
    )]
    Unstoppable,
    #[error("its loader is at work: it starts, or opens a library (try again)")]
    Loading,
    #[error("it is stopped (let it go on first: kill -CONT)")]
    Halted,
    #[error("it has ended, or its first thread has")]
    Ended,
    #[error(
        "its seccomp mode is strict: it may make no system call for us (start it with sampler run --preload)"
    )]
    StrictSeccomp,
    #[error(
        "its seccomp filter does not let system call {nr} ({name}) through (start it with sampler run --preload)"
    )]
    Seccomp { nr: i64, name: &'static str },
    #[error(
        "its seccomp filters cannot be read: {error} (needs CAP_SYS_ADMIN and a kernel with checkpoint and restore)"
    )]
    UnreadableSeccomp { error: std::io::Error },
    #[error(
        "thread {tid} has its system calls dispatched to itself (prctl PR_SET_SYSCALL_USER_DISPATCH)"
    )]
    Dispatched { tid: Tid },
    #[error("thread {tid} runs code of 32 bits")]
    Thread32Bits { tid: Tid },
    #[error(
        "its libc is not glibc 2.23 or later: {found} (start it with sampler run --preload, or profile it with uprobes)"
    )]
    NoGlibc { found: String },
    #[error("it has no allocator whose functions have names (profile it with uprobes)")]
    NoAllocator,
    #[error("it has the sampler already: {file} was preloaded (attach samplerd to it as it is)")]
    Preloaded { file: String },
    #[error("{what} is in it, which replaces or checks its allocator (profile it without)")]
    Instrumented { what: String },
    #[error("{function} has been changed by another tool: its code differs from the file")]
    Changed { function: String },
    #[error(
        "{function} does not lie in its file any more: the program has moved its code to other memory"
    )]
    Moved { function: String },
    #[error(
        "{function}: the memory that its hook needs is taken, at every place (try again after a restart)"
    )]
    NoPlace { function: String },
    #[error(
        "{function}: a breakpoint of another tool is where its hook would be (try again without uprobes and debuggers on it)"
    )]
    Breakpoint { function: String },
    #[error("{function}: the sampler cannot follow this function (profile it with uprobes)")]
    Unserved { function: String },
    #[error("{function}: there are more functions to hook than the sampler has room for")]
    NoSlot { function: String },
    #[error("thread {tid} uses the thread-local words at fs:{offset:#x} that the sampler needs")]
    WordsInUse { tid: Tid, offset: u64 },
    #[error("another injector is at it (try again)")]
    Busy,
    #[error("no room for the stub in the code of its libraries")]
    NoStub,
    #[error("no room for the image in its address space")]
    NoRoom,
    #[error("nothing of ours is in it")]
    NothingInjected,
}

/// Beginnings of the file names of libraries that instrument or replace an allocator.
const INSTRUMENTS: [&str; 16] = [
    "libasan.so",
    "libtsan.so",
    "liblsan.so",
    "libubsan.so",
    "libhwasan.so",
    "vgpreload_",
    "memcheck-",
    "librrpreload",
    "libheaptrack_",
    "libefence",
    "libduma",
    "libdmalloc",
    "libmemusage",
    "libmtrace",
    // Their `operator delete` refuses blocks of `malloc`.
    "libtcmalloc_debug",
    "libtcmalloc_minimal_debug",
];
/// Symbols that a program with a sanitizer has.
const INSTRUMENTED: [&str; 4] = ["__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"];
/// Oldest supported version of glibc. Older versions use the thread-local bytes at
/// [`THREAD_OFFSET`] themselves.
const OLDEST_GLIBC: (u32, u32) = (2, 23);

/// A checked process, locked against other injectors.
pub struct Checked {
    /// The process.
    pub target: Target,
    /// What earlier injectors left in the process.
    pub remains: Remains,
    _lock: File,
}

/// Checks what every operation needs, without stopping the process.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn check(pid: i32) -> Result<Checked> {
    check_state(pid)?;
    let lock = lock(pid)?;
    let (target, remains) = read(pid)?;
    Ok(Checked { target, remains, _lock: lock })
}

/// Checks a process by reading alone. The process is neither stopped nor locked against other
/// injectors.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn examine(pid: i32) -> Result<(Target, Remains)> {
    check_state(pid)?;
    read(pid)
}

fn read(pid: i32) -> Result<(Target, Remains)> {
    let memory = Memory::open(pid).map_err(|error| Refusal::NoRight { error })?;
    check_class(pid)?;
    let mut maps = Maps::read(pid)?;
    let remains = Remains::find(pid, &maps, &memory)?;
    // Remains of earlier injectors count as free: they are unmapped before anything is mapped.
    let is_left = |of: &Mapping| {
        remains.ranges.iter().any(|(start, end)| *start <= of.start && of.end <= *end)
    };
    maps.all.retain(|mapping| !is_left(mapping));
    Ok((Target { pid, memory, maps }, remains))
}

fn check_state(pid: i32) -> Result<()> {
    let process = procfs::process::Process::new(pid).map_err(|_| Refusal::NoProcess)?;
    let status = process.status().map_err(|_| Refusal::NoProcess)?;
    let state = process.stat().map_err(|_| Refusal::NoProcess)?.state;
    // A process without memory has ended, or is a kernel thread.
    let Some(_) = status.vmsize else {
        return Err(match state {
            'Z' | 'X' => Refusal::Ended,
            _ => Refusal::KernelThread,
        }
        .into());
    };
    match () {
        () if status.tgid != pid => Err(Refusal::NoProcess.into()),
        // An earlier try of this injector traces the thread, which has not stopped yet and so
        // cannot be detached.
        () if status.tracerpid.cast_unsigned() == std::process::id() => {
            Err(Refusal::Unstoppable.into())
        }
        () if status.tracerpid != 0 => Err(Refusal::Traced { tracer: status.tracerpid }.into()),
        // The tracer stopped the process between the read of `status` and that of `stat`. A
        // debugger holds a process for longer, so the tracer is probably another injector.
        () if state == 't' => Err(Refusal::Busy.into()),
        () if state == 'T' => Err(Refusal::Halted.into()),
        () if matches!(state, 'Z' | 'X') => Err(Refusal::Ended.into()),
        () if status.seccomp == Some(1) => Err(Refusal::StrictSeccomp.into()),
        () => Ok(()),
    }
}

/// Locks a process against other injectors. A second injector is refused ([`Refusal::Busy`]) and
/// does not wait.
fn lock(pid: i32) -> Result<File> {
    let file = File::open(format!("/proc/{pid}/status")).map_err(|_| Refusal::NoProcess)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| Refusal::Busy)?;
    Ok(file)
}

fn check_class(pid: i32) -> Result<()> {
    let mut head = [0; 20];
    let open = || File::open(format!("/proc/{pid}/exe"))?.read_exact(&mut head);
    let mut open = open;
    open().map_err(|error| Refusal::NoRight { error })?;
    // EI_CLASS, e_machine.
    let is_x86_64 = head[4] == 2 && u16::from_le_bytes([head[18], head[19]]) == 62;
    if is_x86_64 { Ok(()) } else { Err(Refusal::Not64Bits.into()) }
}

/// Checks the files of a process: its libc, its allocators, and instruments.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn check_files(target: &Target) -> Result<Allocators> {
    if target.is_loading()? {
        return Err(Refusal::Loading.into());
    }
    for mapping in &target.maps.all {
        let name = mapping.file_name();
        if INSTRUMENTS.iter().any(|with| name.starts_with(with)) {
            return Err(Refusal::Instrumented { what: name.to_owned() }.into());
        }
    }
    let files = target.files()?;
    check_libc(target, &files)?;
    for file in &files {
        if file.symbols.contains_key("sampler_preload_settings") {
            return Err(Refusal::Preloaded { file: file.mapping.name.clone() }.into());
        }
        if INSTRUMENTED.iter().any(|symbol| file.symbols.contains_key(*symbol)) {
            let what = format!("a sanitizer (of {})", file.name());
            return Err(Refusal::Instrumented { what }.into());
        }
    }
    Allocators::find(target, files)
}

fn check_libc(target: &Target, files: &[Loaded]) -> Result<()> {
    let libc = files.iter().find(|file| file.symbols.contains_key("gnu_get_libc_version"));
    let Some(libc) = libc else {
        let is_musl = |of: &Mapping| of.name.contains("musl");
        let found = if target.maps.all.iter().any(is_musl) {
            "musl"
        } else {
            "none is mapped (a static program)"
        };
        return Err(Refusal::NoGlibc { found: found.to_owned() }.into());
    };
    let version = version(libc.file.all()?).context("glibc does not say its version")?;
    if version < OLDEST_GLIBC {
        let found = format!("glibc {}.{}", version.0, version.1);
        return Err(Refusal::NoGlibc { found }.into());
    }
    Ok(())
}

/// Version of glibc according to its banner, which every build of glibc has.
fn version(libc: &[u8]) -> Option<(u32, u32)> {
    const BEFORE: &[u8] = b"GNU C Library ";
    const WORD: &[u8] = b"version ";
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|of| of == what);
    let banner = &libc[find(libc, BEFORE)?..];
    let banner = &banner[..banner.len().min(160)];
    let text = &banner[find(banner, WORD)? + WORD.len()..];
    let text = String::from_utf8_lossy(text);
    let (major, rest) = text.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Checks the threads of a stopped process. With `has_image`, their thread-local bytes at
/// [`THREAD_OFFSET`] may be in use: they belong to an earlier injection.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn check_threads(target: &Target, stopped: &Stopped, has_image: bool) -> Result<()> {
    for &tid in stopped.threads() {
        let Ok(registers) = kernel::registers(tid) else { continue };
        if registers.cs != calls::CODE_SEGMENT {
            return Err(Refusal::Thread32Bits { tid }.into());
        }
        if kernel::dispatches_syscalls(tid) == Some(true) {
            return Err(Refusal::Dispatched { tid }.into());
        }
        if !has_image {
            let address = registers.fs_base.wrapping_add(THREAD_OFFSET);
            let words: [u8; THREAD_BYTES] = target.memory.array(address)?;
            if words.iter().any(|byte| *byte != 0) {
                return Err(Refusal::WordsInUse { tid, offset: THREAD_OFFSET }.into());
            }
        }
    }
    Ok(())
}

/// Evaluates the seccomp filters of a stopped thread for each system call in `calls`, and for those
/// of the stub itself.
///
/// # Errors
/// A [`Refusal`], or an error if a program cannot be evaluated.
pub fn check_filters(tid: Tid, place: StubPlace, calls: &[Call]) -> Result<()> {
    if !has_filters(tid) {
        return Ok(());
    }
    let programs =
        kernel::seccomp_programs(tid).map_err(|error| Refusal::UnreadableSeccomp { error })?;
    let of_table = calls.iter().map(|call| (*call, place.syscall_ip));
    for (call, ip) in of_table.chain(place.own_calls()) {
        let filter_call = filter::Call { nr: call.nr as u64, args: call.args, ip };
        let verdict = filter::evaluate_all(programs.iter().map(Vec::as_slice), &filter_call)?;
        if verdict != Verdict::Allow {
            return Err(Refusal::Seccomp { nr: call.nr, name: name(call.nr) }.into());
        }
    }
    Ok(())
}

/// Whether a thread has seccomp filters.
pub(crate) fn has_filters(tid: Tid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    line.map(str::trim) != Some("0")
}

fn name(nr: i64) -> &'static str {
    match nr {
        libc::SYS_memfd_create => "memfd_create",
        libc::SYS_mmap => "mmap",
        libc::SYS_munmap => "munmap",
        libc::SYS_madvise => "madvise",
        libc::SYS_close => "close",
        libc::SYS_ppoll => "ppoll",
        libc::SYS_rt_sigprocmask => "rt_sigprocmask",
        _ => "?",
    }
}

/// Finds room for the stub, the machine code that makes system calls in the process
/// ([`StubPlace`]). The room is zeros between the end of a file's code and the end of its last
/// page. The stub of a dead injector is reused if no thread executes it.
///
/// # Errors
/// If there is no room.
pub fn find_stub(target: &Target, stopped: &Stopped) -> Result<StubPlace> {
    let is_file = |of: &&Mapping| of.is_executable && of.inode != 0 && !record::is_of_image(of);
    // A signal handler may return to the stub of a dead injector: such a stub is the last choice.
    for may_be_stub in [false, true] {
        for bytes in calls::ROOM_BYTES {
            for mapping in target.maps.all.iter().filter(is_file) {
                let address = (mapping.end - bytes) & !15;
                let Ok(content) = target.memory.read(address, bytes as usize) else { continue };
                let is_candidate = match may_be_stub {
                    false => content.iter().all(|byte| *byte == 0),
                    true => content.starts_with(&calls::MAGIC),
                };
                if !is_candidate {
                    continue;
                }
                let place = StubPlace::at(address, bytes)?;
                let is_free = match may_be_stub {
                    false => is_behind_code(target, mapping, address),
                    true => !is_in_use(place, stopped),
                };
                if is_free {
                    return Ok(place);
                }
            }
        }
    }
    Err(Refusal::NoStub.into())
}

/// Whether the address lies behind the code segment of the mapping. Bytes there are mapped only
/// because pages are mapped whole.
fn is_behind_code(target: &Target, mapping: &Mapping, address: u64) -> bool {
    let segments = || {
        let file = crate::elf::File64::new(target.maps.open(mapping)?)?;
        file.segments()
    };
    let Ok(segments) = segments() else { return false };
    let mut of_mapping =
        segments.iter().filter(|of| of.offset & !(PAGE_BYTES - 1) == mapping.offset);
    of_mapping.any(|of| {
        let start = mapping.start + (of.address & (PAGE_BYTES - 1));
        of.is_code() && start + of.file_bytes <= address
    })
}

fn is_in_use(place: StubPlace, stopped: &Stopped) -> bool {
    let is_in = |tid: &Tid| kernel::registers(*tid).is_ok_and(|of| place.has(of.rip));
    stopped.threads().iter().any(is_in)
}

/// Stops the process for a moment to check its threads. Returns the place for the stub.
///
/// # Errors
/// A [`Refusal`], or any other failure.
pub fn check_stopped_threads(checked: &Checked) -> Result<StubPlace> {
    kernel::set_urgent(true);
    let found = stop::stop(checked.target.pid).map_err(anyhow::Error::from).and_then(|stopped| {
        check_threads(&checked.target, &stopped, checked.remains.record.is_some())?;
        find_stub(&checked.target, &stopped)
    });
    kernel::set_urgent(false);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_glibc_is_read_from_its_banner() {
        let banner = |text: &str| version(format!("\0\0{text}\nCopyright").as_bytes());
        let debian = "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.";
        assert_eq!(banner(debian), Some((2, 36)));
        let ubuntu =
            "GNU C Library (Ubuntu GLIBC 2.23-0ubuntu11) stable release version 2.23, by Roland";
        assert_eq!(banner(ubuntu), Some((2, 23)));
        assert_eq!(banner("musl libc"), None);
    }
}
