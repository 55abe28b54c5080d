//! What `dlsym(RTLD_NEXT, …)` would find, read from the loader's own list without calling it: `dlsym` may allocate and takes the
//! loader's lock, and before glibc 2.34 a program need not have it.
//!
//! The list is `struct link_map` of link.h, from `_r_debug`: the program, what is preloaded, what these need. Where there is no `_r_debug` (musl), `dlsym`
//! is asked, which there neither allocates nor may be missing.

use crate::file::{Map, find};
use core::arch::asm;
use core::ffi::{c_char, c_void};

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

/// Calls `take` with what finds a function by its name in the files behind this one: null if none has it.
pub fn with(take: impl FnOnce(&dyn Fn(&[u8]) -> *mut c_void)) {
    let debug = weak!("_r_debug") as *const Debug;
    if debug.is_null() {
        return take(&asked);
    }
    // SAFETY: the loader's, for debuggers; it stays.
    let first = unsafe { (*debug).map };
    let own = own_dynamic();
    let behind = maps(first).skip_while(|map| map.dynamic as usize != own).skip(1);
    let behind = || behind.clone();
    take(&|name| behind().find_map(|map| find(map, name)).unwrap_or(core::ptr::null_mut()));
}

/// As `dlsym` has it.
fn asked(name: &[u8]) -> *mut c_void {
    let dlsym = weak!("dlsym");
    let mut text = [0u8; 32];
    if dlsym == 0 || name.len() >= text.len() {
        return core::ptr::null_mut();
    }
    text.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: the function of that name is of this type everywhere.
    let dlsym = unsafe { core::mem::transmute::<usize, Dlsym>(dlsym) };
    // RTLD_NEXT
    let next = usize::MAX as *mut c_void;
    // SAFETY: the name ends with a zero.
    unsafe { dlsym(next, text.as_ptr().cast()) }
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

fn maps(first: *const Map) -> impl Iterator<Item = &'static Map> + Clone {
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
