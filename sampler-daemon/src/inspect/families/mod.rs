//! Tables of the functions of each allocator, one file for each. Comments that say which function
//! calls which describe the libraries of Debian 12.

pub(super) mod glibc;
pub(super) mod jemalloc;
pub(super) mod mimalloc;
pub(super) mod musl;
pub(super) mod rpmalloc;
pub(super) mod snmalloc;
pub(super) mod tbbmalloc;
pub(super) mod tcmalloc;
