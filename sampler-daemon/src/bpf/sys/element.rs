//! Elements of hash maps: remove, look up, insert, and list all.

use super::bpf;
use sampler_common::wire::{LiveEntry, LiveKey, LostCell, LostKey, Pending, PendingKey};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const MAP_LOOKUP_ELEM: c_int = 1;
const MAP_UPDATE_ELEM: c_int = 2;
const MAP_LOOKUP_AND_DELETE_ELEM: c_int = 21;
const MAP_LOOKUP_BATCH: c_int = 24;

/// A type that the kernel may write into.
///
/// # Safety
/// The type has no implicit padding, and every bit pattern is a value. Keys and values have exactly
/// their map's sizes.
pub(in crate::bpf) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: a `repr(C)` struct of integers with explicit padding.
        unsafe impl Plain for $type {}
    )*};
}

plain!(LiveKey, LiveEntry, LostKey, LostCell, PendingKey, Pending);

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Removes an element from a hash map and returns it, if it exists.
pub(in crate::bpf) fn take<K: Plain, V: Plain>(
    map: BorrowedFd<'_>,
    key: &K,
) -> io::Result<Option<V>> {
    read(MAP_LOOKUP_AND_DELETE_ELEM, map, key)
}

/// Returns a copy of an element of a hash map, if it exists.
pub(in crate::bpf) fn look_up<K: Plain, V: Plain>(
    map: BorrowedFd<'_>,
    key: &K,
) -> io::Result<Option<V>> {
    read(MAP_LOOKUP_ELEM, map, key)
}

fn read<K: Plain, V: Plain>(command: c_int, map: BorrowedFd<'_>, key: &K) -> io::Result<Option<V>> {
    let mut value = std::mem::MaybeUninit::<V>::zeroed();
    let mut attribute = MapElement {
        map: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(key) as u64,
        value: value.as_mut_ptr() as u64,
        ..Default::default()
    };
    match bpf(command, &mut attribute) {
        // SAFETY: the kernel has written the value; every bit pattern is one (`Plain`).
        Ok(_) => Ok(Some(unsafe { value.assume_init() })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Inserts an element in a hash map. Fails if the key exists.
pub(in crate::bpf) fn insert_new<K: Plain, V: Plain>(
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

/// Returns the elements of a hash map: all that exist during the whole call, and some of those that
/// are added or removed meanwhile.
pub(in crate::bpf) fn entries<K: Plain, V: Plain>(
    map: BorrowedFd<'_>,
    zero: (K, V),
) -> io::Result<Vec<(K, V)>> {
    let mut result = Vec::new();
    let mut capacity = 4096;
    // The position is opaque. For hash maps it is a bucket number.
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
            // One bucket holds more elements than fit.
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
