//! A word of memory that CPUs share.

/// 64 bits of memory with the operations that the kernel and user space both have. The tests
/// implement it with schedules of their own.
pub trait Word {
    /// The value now.
    fn load(&self) -> u64;
    /// Adds (wrapping) in one step.
    fn add(&self, amount: u64);
}

// The target of the kernel side has no such type; a count orders nothing else.
#[cfg(feature = "std")]
impl Word for std::sync::atomic::AtomicU64 {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[inline(always)]
    fn add(&self, amount: u64) {
        self.fetch_add(amount, std::sync::atomic::Ordering::Relaxed);
    }
}
