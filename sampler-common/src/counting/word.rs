//! A memory word that CPUs share.

/// 64 bits of memory with the operations that both the kernel and user space have. The tests
/// implement it with their own schedules.
pub trait Word {
    /// The value now.
    fn load(&self) -> u64;
    /// Adds (wrapping) in one atomic step.
    fn add(&self, amount: u64);
}

// The target of the kernel side has no such type. Relaxed: a count orders no other memory access.
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
