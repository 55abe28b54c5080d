//! Programs for comparing our costs: empty programs, and the work of memleak.
#![no_std]
#![no_main]

mod memleak;

use aya_ebpf::cty::c_void;

/// An empty session program that skips the return.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn empty_session(_context: *mut c_void) -> u32 {
    1
}

/// An empty program, for entries and for returns.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn empty(_context: *mut c_void) -> u32 {
    0
}

/// Entry of `malloc` as memleak does it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn memleak_enter(context: *mut c_void) -> u32 {
    memleak::enter(context);
    0
}

/// Return of `malloc` as memleak does it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uretprobe")]
pub extern "C" fn memleak_leave(context: *mut c_void) -> u32 {
    memleak::leave(context);
    0
}

/// Entry of `free` as memleak does it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn memleak_free(context: *mut c_void) -> u32 {
    memleak::free(context);
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
