//! The tables, one file for each allocator. The statements about which function calls which were
//! measured on Debian 12's libraries.

pub(super) mod glibc;
pub(super) mod jemalloc;
pub(super) mod mimalloc;
pub(super) mod musl;
pub(super) mod rpmalloc;
pub(super) mod snmalloc;
pub(super) mod tbbmalloc;
pub(super) mod tcmalloc;
