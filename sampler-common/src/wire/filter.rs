//! The free filter: small counters, by the address, in front of the live set.

/// Counters of the free filter's front level: 64 KiB.
pub const FILTER_FRONT_COUNTERS: u32 = 1 << 14;

/// `shift` of the front level for [`filter_index`].
pub const FILTER_FRONT_SHIFT: u64 = 64 - FILTER_FRONT_COUNTERS.trailing_zeros() as u64;

/// Counter of the free filter that a block belongs to; `shift` is 64 − log2 of their number.
///
/// Multiplicative (Fibonacci) hashing of the address in units of 8 bytes, less than which no allocator
/// aligns. The shift before it breaks the regular distances of neighbouring blocks: without it the
/// live blocks of a heap of equal blocks meet either none of the others or a third of them.
#[inline(always)]
pub const fn filter_index(pointer: u64, slot: u32, shift: u64) -> u64 {
    let key = (pointer >> 3) ^ ((slot as u64) << 52);
    (key ^ (key >> 12)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (shift & 63)
}
