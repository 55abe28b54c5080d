//! `bpf(2)` commands that aya does not have, and memory shared with maps.
//!
//! aya 0.14 knows neither multi nor session uprobes, batched look-ups, look-up-and-delete nor
//! memory-mapped arrays. aya's uprobes by perf event belong to the process that attaches them; ours
//! may belong to another process ([`super::guardian`]).
//! Layouts follow `union bpf_attr` of `include/uapi/linux/bpf.h`.

mod element;
pub(super) mod filtered;
mod first_stack;
pub(super) mod ground;
mod memory;
mod perf;
mod signals;

pub(super) use element::{entries, insert_new, look_up, take};
pub(super) use memory::SharedMemory;
pub(super) use perf::link_perf_uprobe;
pub(super) use signals::ignore_termination;

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const PROG_LOAD: c_int = 5;
const TYPES_LOAD: c_int = 18;
const LINK_CREATE: c_int = 28;
const PROG_TYPE_KPROBE: u32 = 2;

/// `BPF_TRACE_UPROBE_MULTI`
pub(super) const ATTACH_MULTI: u32 = 48;
/// `BPF_TRACE_UPROBE_SESSION`
pub(super) const ATTACH_SESSION: u32 = 57;
/// `BPF_F_UPROBE_MULTI_RETURN`
pub(super) const RETURN: u32 = 1;

fn bpf<T>(command: c_int, attribute: &mut T) -> io::Result<i64> {
    let pointer: *mut T = attribute;
    // SAFETY: the attribute is a live `repr(C)` struct of the given size, zero where unused; every
    // pointer inside it outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: i64) -> OwnedFd {
    // SAFETY: the kernel has just returned this descriptor to us alone.
    unsafe { OwnedFd::from_raw_fd(result as i32) }
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
    types: u32,
    function_bytes: u32,
    functions: u64,
    function_count: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct TypesLoad {
    types: u64,
    log_buffer: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    pad: u32,
}

/// Loads type information (BTF). On rejection the error contains the end of the kernel's log.
pub(super) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attribute =
        TypesLoad { types: types.as_ptr() as u64, size: types.len() as u32, ..Default::default() };
    if let Ok(fd) = bpf(TYPES_LOAD, &mut attribute) {
        return Ok(owned(fd));
    }
    with_log(|log| {
        attribute.log_level = 1;
        attribute.log_size = log.len() as u32;
        attribute.log_buffer = log.as_mut_ptr() as u64;
        bpf(TYPES_LOAD, &mut attribute).map(owned)
    })
}

/// Repeats a failed load with a log. The first attempt has no log, because a log makes loading
/// slow.
fn with_log(load: impl FnOnce(&mut [u8]) -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    let mut log = vec![0u8; 1 << 22];
    load(&mut log).map_err(|error| {
        let text = String::from_utf8_lossy(&log);
        let text = text.trim_end_matches('\0').trim_end();
        tracing::debug!(target: "verifier", "{text}");
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        io::Error::new(error.kind(), format!("{error}; verifier: {}", last.join(" | ")))
    })
}

/// Bytes of a `struct bpf_func_info`.
const FUNCTION_BYTES: usize = 8;

/// Loads a uprobe program for `attach_type`. `instructions` are encoded, 8 bytes each. `types` are
/// the loaded types and the `struct bpf_func_info` of each function. On rejection the error
/// contains the end of the verifier's log.
pub(super) fn load_program(
    name: &str,
    instructions: &[u8],
    types: Option<(BorrowedFd<'_>, &[u8])>,
    attach_type: u32,
) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let mut attribute = ProgramLoad {
        program_type: PROG_TYPE_KPROBE,
        instruction_count: (instructions.len() / 8) as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        expected_attach_type: attach_type,
        ..Default::default()
    };
    if let Some((types, functions)) = types {
        attribute.types = types.as_raw_fd() as u32;
        attribute.function_bytes = FUNCTION_BYTES as u32;
        attribute.functions = functions.as_ptr() as u64;
        attribute.function_count = (functions.len() / FUNCTION_BYTES) as u32;
    }
    for (to, from) in attribute.name.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    if let Ok(fd) = bpf(PROG_LOAD, &mut attribute) {
        return Ok(owned(fd));
    }
    with_log(|log| {
        attribute.log_level = 1;
        attribute.log_size = log.len() as u32;
        attribute.log_buffer = log.as_mut_ptr() as u64;
        bpf(PROG_LOAD, &mut attribute).map(owned)
    })
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    link_flags: u32,
    path: u64,
    offsets: u64,
    reference_counters: u64,
    cookies: u64,
    count: u32,
    flags: u32,
    pid: u32,
    pad: u32,
}

/// Makes a multi or session link on `offsets` of the file at `path`; pid 0 means every process.
pub(super) fn link_uprobes(
    program: BorrowedFd<'_>,
    attach_type: u32,
    path: &str,
    offsets: &[u64],
    cookies: &[u64],
    flags: u32,
    pid: u32,
) -> io::Result<OwnedFd> {
    link_counted(program, attach_type, path, offsets, (cookies, &[]), flags, pid)
}

/// [`link_uprobes`] with cookies and counters. A counter is a file offset for each probe (0: none).
/// The kernel raises the counter in every process while the probe is attached. Either list may be
/// empty.
pub(super) fn link_counted(
    program: BorrowedFd<'_>,
    attach_type: u32,
    path: &str,
    offsets: &[u64],
    (cookies, counters): (&[u64], &[u64]),
    flags: u32,
    pid: u32,
) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let mut attribute = LinkCreate {
        program: program.as_raw_fd() as u32,
        attach_type,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        cookies: if cookies.is_empty() { 0 } else { cookies.as_ptr() as u64 },
        reference_counters: if counters.is_empty() { 0 } else { counters.as_ptr() as u64 },
        count: offsets.len() as u32,
        flags,
        pid,
        ..Default::default()
    };
    bpf(LINK_CREATE, &mut attribute).map(owned)
}
