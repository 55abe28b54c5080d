//! Code of processes: what it calls, what the kernel makes of its instructions, and whether it is
//! still the code of its file.

pub(crate) mod calls;
pub(super) mod emulated;
pub mod in_memory;
pub(super) mod moved;
pub mod moving;
pub mod patched;
