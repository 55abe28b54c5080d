//! What `dlsym` would find, read from the loader's own list without calling it: `dlsym` may allocate and takes the
//! loader's lock, and before glibc 2.34 a program need not have it.
//!
//! The list is `struct link_map` of link.h, from `_r_debug`: the program, what is preloaded, what these need. Where there is no `_r_debug` (musl), `dlsym`
//! is asked, which there neither allocates nor may be missing.

use crate::file::{Map, find};
use core::arch::asm;
use core::ffi::{c_char, c_void};

/// Places for `dlsym` to look in, of dlfcn.h.
const RTLD_NEXT: usize = usize::MAX;
const RTLD_DEFAULT: usize = 0;
/// Files in the list, at most.
const MOST_FILES: usize = 4096;

#[repr(C)]
struct Debug {
    version: i32,
    map: *const Map,
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Address of a symbol that may be missing: 0 then.
macro_rules! weak {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads the entry of this name that the loader has written, before anybody could call us.
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
    /// From this one on, as the loader lists them.
    Listed(*const Map),
    /// As `dlsym` knows them.
    Asked,
}

impl Files {
    /// Those of this process.
    pub(crate) fn here() -> Files {
        let debug = weak!("_r_debug") as *const Debug;
        if debug.is_null() {
            return Files::Asked;
        }
        // SAFETY: the loader's, for debuggers; it stays.
        Files::Listed(unsafe { (*debug).map })
    }

    /// A function by its name in the files behind this one: null if none has it.
    pub(crate) fn behind(&self, name: &[u8]) -> *mut c_void {
        let Files::Listed(first) = self else { return asked(RTLD_NEXT, name) };
        let own = own_dynamic();
        let behind = maps(*first).skip_while(|map| map.dynamic as usize != own).skip(1);
        found(behind, name)
    }

    /// The one that a call from any file reaches.
    pub(crate) fn first(&self, name: &[u8]) -> *mut c_void {
        let Files::Listed(first) = self else { return asked(RTLD_DEFAULT, name) };
        found(maps(*first), name)
    }
}

fn found(mut maps: impl Iterator<Item = &'static Map>, name: &[u8]) -> *mut c_void {
    maps.find_map(|map| find(map, name)).unwrap_or(core::ptr::null_mut())
}

/// As `dlsym` has it.
fn asked(from: usize, name: &[u8]) -> *mut c_void {
    let dlsym = weak!("dlsym");
    let mut text = [0u8; 32];
    if dlsym == 0 || name.len() >= text.len() {
        return core::ptr::null_mut();
    }
    text.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: the function of that name is of this type everywhere.
    let dlsym = unsafe { core::mem::transmute::<usize, Dlsym>(dlsym) };
    // SAFETY: the name ends with a zero.
    unsafe { dlsym(from as *mut c_void, text.as_ptr().cast()) }
}

fn own_dynamic() -> usize {
    let address;
    // SAFETY: takes an address.
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
            // SAFETY: an entry of the loader's list, or null. Entries of what was there when the program began are never removed.
            let map: &'static Map = unsafe { next.as_ref() }?;
            next = map.next;
            Some(map)
        }
    });
    each.take(MOST_FILES)
}
