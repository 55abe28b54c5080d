//! Programs that do nothing, to compare the costs of ours with.
#![no_std]
#![no_main]

use core::ffi::c_void;

/// An empty session program that skips the return.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn empty_session(_context: *mut c_void) -> u32 {
    1
}

/// An empty program.
#[unsafe(no_mangle)]
#[unsafe(link_section = "uprobe")]
pub extern "C" fn empty_entry(_context: *mut c_void) -> u32 {
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
