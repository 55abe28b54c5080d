//! Finds what `dlsym` would find, in the loader's own list and without a call of `dlsym`.
//!
//! `dlsym` may allocate and takes the loader's lock. Before glibc 2.34 it may even be missing in a
//! program.
//!
//! The list is `struct link_map` of link.h, from `_r_debug`: the program, the preloaded files, and
//! the files that these need. Without `_r_debug` (musl) `dlsym` is called, which in musl neither
//! allocates nor can be missing.

use crate::file::{Map, find};
use core::arch::asm;
use core::ffi::{CStr, c_char, c_void};

/// Handles of dlfcn.h for `dlsym`.
const RTLD_NEXT: usize = usize::MAX;
const RTLD_DEFAULT: usize = 0;
/// Maximum number of files in the list.
const MAX_FILES: usize = 4096;

#[repr(C)]
struct Debug {
    version: i32,
    map: *const Map,
}

type Dlerror = unsafe extern "C" fn() -> *mut c_char;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Address of a symbol that may be missing; 0 if it is.
macro_rules! weak {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads the entry of this name, which the loader has written before any call can
        // arrive.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use weak;

/// The process's files, in link order.
pub(crate) enum Files {
    /// The loader's list, from this file on.
    Listed(*const Map),
    /// The files that `dlsym` searches.
    LookedUp,
}

impl Files {
    /// The files of this process.
    pub(crate) fn here() -> Files {
        let debug = weak!("_r_debug") as *const Debug;
        if debug.is_null() {
            return Files::LookedUp;
        }
        // SAFETY: memory of the loader for debuggers, which stays.
        Files::Listed(unsafe { (*debug).map })
    }

    /// A function by its name in the files behind this one; null if none has it.
    pub(crate) fn behind(&self, name: &CStr) -> *mut c_void {
        let Files::Listed(first) = self else { return looked_up(RTLD_NEXT, name) };
        found(behind(*first), name)
    }

    /// A function by its name in the files behind this one, with its file.
    #[inline(never)]
    pub(crate) fn found(&self, name: &CStr) -> Option<Found> {
        let Files::Listed(first) = self else {
            let function = looked_up(RTLD_NEXT, name);
            return (!function.is_null()).then_some(Found { function, file: None });
        };
        let found = |map| Some(Found { function: find(map, name.to_bytes())?, file: Some(map) });
        behind(*first).find_map(found)
    }

    /// The function that a call from any file reaches.
    pub(crate) fn first(&self, name: &CStr) -> *mut c_void {
        let Files::Listed(first) = self else { return looked_up(RTLD_DEFAULT, name) };
        found(maps(*first), name)
    }
}

/// A function by its name in any file that the loader lists, including the kernel's vDSO, which
/// `dlsym` of musl does not search.
pub(crate) fn in_any_file(name: &CStr) -> *mut c_void {
    let listed = weak!("_r_debug") as *const Debug;
    let listed_by_musl = weak!("_dl_debug_addr") as *const *const Debug;
    let debug = match listed.is_null() && !listed_by_musl.is_null() {
        // SAFETY: a pointer that musl's loader has written before any call can arrive.
        true => unsafe { listed_by_musl.read() },
        false => listed,
    };
    // SAFETY: memory of the loader for debuggers, which stays. Both loaders list files as `struct
    // link_map`.
    let Some(debug) = (unsafe { debug.as_ref() }) else { return core::ptr::null_mut() };
    found(maps(debug.map), name)
}

/// A function that was found.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) function: *mut c_void,
    /// `None`: the file is unknown.
    file: Option<&'static Map>,
}

impl Found {
    /// Whether the function's file has a `malloc` too. True if the file is unknown.
    pub(crate) fn is_of_allocator(&self) -> bool {
        self.file.is_none() || self.is_beside(b"malloc")
    }

    /// Whether the function's file has a function with this name too. False if the file is unknown.
    pub(crate) fn is_beside(&self, name: &[u8]) -> bool {
        self.file.is_some_and(|file| find(file, name).is_some())
    }
}

fn behind(first: *const Map) -> impl Iterator<Item = &'static Map> {
    let own = own_dynamic();
    maps(first).skip_while(move |map| map.dynamic as usize != own).skip(1)
}

fn found(mut maps: impl Iterator<Item = &'static Map>, name: &CStr) -> *mut c_void {
    maps.find_map(|map| find(map, name.to_bytes())).unwrap_or(core::ptr::null_mut())
}

/// The result of `dlsym`.
fn looked_up(from: usize, name: &CStr) -> *mut c_void {
    let dlsym = weak!("dlsym");
    if dlsym == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: the function of that name is of this type everywhere.
    let dlsym = unsafe { core::mem::transmute::<usize, Dlsym>(dlsym) };
    // SAFETY: the name ends with a zero.
    let address = unsafe { dlsym(from as *mut c_void, name.as_ptr()) };
    let dlerror = weak!("dlerror");
    if address.is_null() && dlerror != 0 {
        // A miss is kept for the next `dlerror`, and the program would take it for an error of its
        // own.
        // SAFETY: the function of that name is of this type everywhere.
        let dlerror = unsafe { core::mem::transmute::<usize, Dlerror>(dlerror) };
        // SAFETY: it only reads and clears what is kept for this thread.
        unsafe { dlerror() };
    }
    address
}

fn own_dynamic() -> usize {
    let address;
    // SAFETY: computes an address.
    unsafe {
        asm!(
            ".hidden _DYNAMIC",
            "lea {}, [rip + _DYNAMIC]",
            out(reg) address,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    address
}

fn maps(first: *const Map) -> impl Iterator<Item = &'static Map> {
    let mut next = first;
    let each = core::iter::from_fn({
        move || {
            // SAFETY: an entry of the loader's list, or null. Entries of files that were there at
            // the program's start are never removed.
            let map: &'static Map = unsafe { next.as_ref() }?;
            next = map.next;
            Some(map)
        }
    });
    each.take(MAX_FILES)
}
