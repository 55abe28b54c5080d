//! A word of memory that CPUs share.

/// 64 bits of memory with the operations that the kernel and user space both have. The tests
/// implement it with schedules of their own.
pub trait Word {
    /// The value now.
    fn load(&self) -> u64;
    /// Stores, whatever is there.
    fn store(&self, value: u64);
    /// Adds (wrapping) in one step.
    fn add(&self, amount: u64);
    /// Stores `new` in one step if `expected` is there; whether it was.
    fn exchange(&self, expected: u64, new: u64) -> bool;
}

// The target of the kernel side has no such type; a count orders nothing else.
#[cfg(feature = "std")]
impl Word for std::sync::atomic::AtomicU64 {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.store(value, std::sync::atomic::Ordering::Relaxed);
    }

    #[inline(always)]
    fn add(&self, amount: u64) {
        self.fetch_add(amount, std::sync::atomic::Ordering::Relaxed);
    }

    #[inline(always)]
    fn exchange(&self, expected: u64, new: u64) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        self.compare_exchange(expected, new, Relaxed, Relaxed).is_ok()
    }
}
