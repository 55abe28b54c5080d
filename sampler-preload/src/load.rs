//! The constructor, which runs when the loader has mapped the library and libc may be used. Calls
//! may have arrived before.

use crate::{boot, fork, sample};

/// The constructor that the loader calls.
#[cfg_attr(feature = "library", used, unsafe(link_section = ".init_array"))]
pub static CONSTRUCTOR: unsafe extern "C" fn() = construct;

unsafe extern "C" fn construct() {
    // Now and not at a later first call: the list of files still is that of the start, without
    // files that may be unloaded. And a reader that attaches before the first call has to know
    // which copy samples.
    boot::boot();
    sample::save_memory();
    fork::register();
}
