//! What is done when the loader has mapped us, and libc may be used. Calls may have come by before.

use crate::{boot, clock, fork, sample};

/// Called by the loader.
#[cfg_attr(feature = "library", used, unsafe(link_section = ".init_array"))]
pub static CONSTRUCTOR: unsafe extern "C" fn() = construct;

unsafe extern "C" fn construct() {
    // Now, and not at a first call later: the list of files is what it was at the start, and has none yet that go again; and whoever attaches before that call has to know which copy samples.
    boot::boot();
    clock::take();
    sample::settle();
    fork::register();
}
