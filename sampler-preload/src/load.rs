//! What is done when the loader has mapped us, and libc may be used. Calls may have come by before.

use crate::{fork, sample};

/// Called by the loader.
#[cfg_attr(feature = "library", used, unsafe(link_section = ".init_array"))]
pub static CONSTRUCTOR: unsafe extern "C" fn() = construct;

unsafe extern "C" fn construct() {
    sample::settle();
    fork::register();
}
