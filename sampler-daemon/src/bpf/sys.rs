//! The few `bpf(2)` commands that aya does not have, and memory shared with maps.
//!
//! aya 0.14 knows neither multi nor session uprobes, batched look-ups, look-up-and-delete nor
//! memory-mapped arrays. Layouts follow `union bpf_attr` of `include/uapi/linux/bpf.h`.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const MAP_LOOKUP_ELEM: c_int = 1;
const MAP_UPDATE_ELEM: c_int = 2;
const PROG_LOAD: c_int = 5;
const MAP_LOOKUP_AND_DELETE_ELEM: c_int = 21;
const MAP_LOOKUP_BATCH: c_int = 24;
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
}

/// Loads a uprobe program for `attach_type`; `instructions` are encoded, 8 bytes each.
/// On rejection the error carries the end of the verifier's log.
pub(super) fn load_program(
    name: &str,
    instructions: &[u8],
    license: &str,
    attach_type: u32,
) -> io::Result<OwnedFd> {
    let license = CString::new(license)?;
    let mut attribute = ProgramLoad {
        program_type: PROG_TYPE_KPROBE,
        instruction_count: (instructions.len() / 8) as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        expected_attach_type: attach_type,
        ..Default::default()
    };
    for (to, from) in attribute.name.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    if let Ok(fd) = bpf(PROG_LOAD, &mut attribute) {
        return Ok(owned(fd));
    }
    // Again, with the log, only now that it is wanted: it is slow.
    let mut log = vec![0u8; 1 << 22];
    attribute.log_level = 1;
    attribute.log_size = log.len() as u32;
    attribute.log_buffer = log.as_mut_ptr() as u64;
    bpf(PROG_LOAD, &mut attribute).map(owned).map_err(|error| {
        let text = String::from_utf8_lossy(&log);
        let text = text.trim_end_matches('\0').trim_end();
        tracing::debug!(target: "verifier", "{text}");
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        io::Error::new(error.kind(), format!("{error}; verifier: {}", last.join(" | ")))
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

/// A multi or session link on `offsets` of the file at `path`; pid 0 is every process.
pub(super) fn link_uprobes(
    program: BorrowedFd<'_>,
    attach_type: u32,
    path: &str,
    offsets: &[u64],
    cookies: &[u64],
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
        count: offsets.len() as u32,
        flags,
        pid,
        ..Default::default()
    };
    bpf(LINK_CREATE, &mut attribute).map(owned)
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Takes an element out of a hash map and returns it; `NotFound` if it is not there.
/// `K` and `V` are plain wire structs of exactly the map's key and value size.
pub(super) fn take<K: Copy, V: Copy>(map: BorrowedFd<'_>, key: &K) -> io::Result<V> {
    read(MAP_LOOKUP_AND_DELETE_ELEM, map, key)
}

/// A copy of an element of a hash map, otherwise as [`take`].
pub(super) fn look_up<K: Copy, V: Copy>(map: BorrowedFd<'_>, key: &K) -> io::Result<V> {
    read(MAP_LOOKUP_ELEM, map, key)
}

fn read<K: Copy, V: Copy>(command: c_int, map: BorrowedFd<'_>, key: &K) -> io::Result<V> {
    let mut value = std::mem::MaybeUninit::<V>::zeroed();
    let mut attribute = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(key) as u64,
        value: value.as_mut_ptr() as u64,
        ..Default::default()
    };
    bpf(command, &mut attribute)?;
    // SAFETY: the kernel has written the value; the callers' types have no invalid bit patterns.
    Ok(unsafe { value.assume_init() })
}

/// Enters an element in a hash map if its key is not there.
pub(super) fn insert_new<K: Copy, V: Copy>(
    map: BorrowedFd<'_>,
    key: &K,
    value: &V,
) -> io::Result<()> {
    const NOEXIST: u64 = 1;
    let mut attribute = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(key) as u64,
        value: std::ptr::from_ref(value) as u64,
        flags: NOEXIST,
        ..Default::default()
    };
    bpf(MAP_UPDATE_ELEM, &mut attribute).map(|_| ())
}

#[repr(C)]
#[derive(Default)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// All elements of a hash map: those that are there from beginning to end, and some of the others.
pub(super) fn entries<K: Copy, V: Copy>(
    map: BorrowedFd<'_>,
    zero: (K, V),
) -> io::Result<Vec<(K, V)>> {
    let mut result = Vec::new();
    let mut capacity = 4096;
    // The position is opaque; for hash maps it is a bucket number.
    let (mut position, mut next) = ([0u64; 4], [0u64; 4]);
    let mut first = true;
    loop {
        let mut keys = vec![zero.0; capacity];
        let mut values = vec![zero.1; capacity];
        let mut attribute = MapBatch {
            in_batch: if first { 0 } else { position.as_mut_ptr() as u64 },
            out_batch: next.as_mut_ptr() as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: capacity as u32,
            map: map.as_raw_fd() as u32,
            ..Default::default()
        };
        let end = match bpf(MAP_LOOKUP_BATCH, &mut attribute) {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            // One bucket holds more than fits.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && capacity < 1 << 22 => {
                capacity *= 2;
                continue;
            }
            Err(error) => return Err(error),
        };
        result.extend(keys.into_iter().zip(values).take(attribute.count as usize));
        if end {
            return Ok(result);
        }
        position = next;
        first = false;
    }
}

/// Memory of a map, shared with the kernel.
#[derive(Debug)]
pub(super) struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all access goes through atomics (`atomic_u64`, `atomic_u32`), from any thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Maps `bytes` bytes from `offset` of the map.
    pub(super) fn map(
        map: BorrowedFd<'_>,
        bytes: usize,
        offset: usize,
        writable: bool,
    ) -> io::Result<SharedMemory> {
        let protection =
            if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(SharedMemory { base, bytes })
    }

    /// The 64-bit word at byte `offset`.
    pub(super) fn atomic_u64(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.bytes,
            "offset {offset} outside the map"
        );
        // SAFETY: in bounds and aligned by the assertion.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the mapping lives as long as `self`; the kernel side also uses atomics.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(word.cast()) }
    }

    /// The 32-bit word at byte `offset`.
    pub(super) fn atomic_u32(&self, offset: usize) -> &std::sync::atomic::AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.bytes,
            "offset {offset} outside the map"
        );
        // SAFETY: in bounds and aligned by the assertion.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: the mapping lives as long as `self`; the kernel side also uses atomics.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(word.cast()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
