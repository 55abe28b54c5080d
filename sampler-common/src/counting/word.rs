//! A memory word that CPUs share.

/// 64 bits of memory, with the operations that both BPF programs and user space have. A test
/// implements the trait with a word that gives some workers an old value.
pub trait Word {
    /// The value now.
    fn load(&self) -> u64;
    /// Adds (wrapping) in one atomic step.
    fn add(&self, amount: u64);
}

// `sampler-ebpf` implements the trait for words of BPF maps. Relaxed: a count orders no other
// memory access.
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
