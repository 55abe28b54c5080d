//! The tables, one file for each allocator. What is said of who calls whom was measured on Debian 12's libraries.

pub(super) mod glibc;
pub(super) mod jemalloc;
pub(super) mod mimalloc;
pub(super) mod musl;
pub(super) mod rpmalloc;
pub(super) mod snmalloc;
pub(super) mod tbbmalloc;
pub(super) mod tcmalloc;
