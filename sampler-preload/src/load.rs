//! What is done when the loader has mapped us, and libc may be used. Calls may have come by before.

use crate::next::Files;
use crate::{boot, fork, sample};

/// Called by the loader.
#[cfg_attr(feature = "library", used, unsafe(link_section = ".init_array"))]
pub static CONSTRUCTOR: unsafe extern "C" fn() = construct;

unsafe extern "C" fn construct() {
    // Now the list of files is what it was at the start: later there may be some in it that go again.
    boot::boot();
    boot::leave_to_another(&Files::here());
    sample::settle();
    fork::register();
}
