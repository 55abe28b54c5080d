//! The daemon's own allocator.

#![allow(unsafe_code, reason = "mimalloc's options have no safe interface")]

/// With its own allocator, the daemon's allocations never hit the probes on libc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`, for which the crate has no name. The option follows this one.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_eager_commit_delay + 1;

/// Makes mimalloc give freed pages back to the kernel at once. mimalloc's default delay adds a third
/// to the memory of a busy daemon: an answer's memory is freed by other threads than its own.
pub(crate) fn give_back_at_once() {
    // SAFETY: no other thread runs yet; the function changes one number.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
}

#[cfg(test)]
mod tests {
    use super::PURGE_DELAY;

    /// The default is ten milliseconds. The options next to it have other defaults.
    #[test]
    fn the_option_is_the_delay() {
        // SAFETY: reads one number; no test writes it.
        let milliseconds = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(milliseconds, 10);
    }
}
