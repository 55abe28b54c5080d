//! A uprobe by perf event (`perf_event_open(2)`), and the link of a program to it.

use super::{LinkCreate, bpf, owned};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

/// `BPF_PERF_EVENT`
const ATTACH_PERF: u32 = 41;
/// `PERF_PROBE_CONFIG_IS_RETPROBE`, bit 0 of `config`
/// (/sys/bus/event_source/devices/uprobe/format/retprobe).
const IS_RETURN: u64 = 1;
/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: u64 = 1 << 3;

/// `struct perf_event_attr` as far as a uprobe needs it: `PERF_ATTR_SIZE_VER1`.
#[repr(C)]
#[derive(Default)]
struct EventAttribute {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    path: u64,
    offset: u64,
}

const _: () = assert!(size_of::<EventAttribute>() == 72);

/// Probes the instruction at `offset` of the file at `path` in process `pid`, or in every process.
/// `pmu` is the type of the PMU `uprobe`. The link holds the perf event.
pub(in crate::bpf) fn link_perf_uprobe(
    program: BorrowedFd<'_>,
    pmu: u32,
    is_return: bool,
    path: &str,
    (offset, cookie): (u64, u64),
    pid: Option<u32>,
) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let attribute = EventAttribute {
        kind: pmu,
        size: size_of::<EventAttribute>() as u32,
        config: if is_return { IS_RETURN } else { 0 },
        path: path.as_ptr() as u64,
        offset,
        ..Default::default()
    };
    // An event of every process belongs to one CPU. Its probe works on every CPU all the same.
    let (pid, cpu) = pid.map_or((-1, 0), |pid| (pid.cast_signed(), -1));
    let attribute: *const EventAttribute = &attribute;
    let (group, flags) = (-1, CLOSE_ON_EXEC);
    // SAFETY: the attribute is a live `repr(C)` struct that states its size; its path outlives the
    // call.
    let event =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attribute, pid, cpu, group, flags) };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = owned(event);
    // `link_create.perf_event.bpf_cookie` has the place of a multi link's path.
    let mut attribute = LinkCreate {
        program: program.as_raw_fd() as u32,
        target: event.as_raw_fd() as u32,
        attach_type: ATTACH_PERF,
        path: cookie,
        ..Default::default()
    };
    bpf(super::LINK_CREATE, &mut attribute).map(owned)
}
