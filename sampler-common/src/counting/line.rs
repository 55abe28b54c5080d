//! A cache line.

/// A value that shares its cache line with nothing: its neighbours' writers do not slow its own
/// down.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Line<T>(
    /// The value.
    pub T,
);

const _: () = assert!(size_of::<Line<u64>>() == 64);
