//! The free filter: small counters, indexed by a hash of the address, in front of the live set.
//!
//! A counter has four bits, so that many share a cache line. Eight counters share the 32-bit word
//! that atomic operations change. A counter that reaches [`FILTER_FULL`] stays there. It then
//! counts too much for ever, which costs look-ups and loses nothing.

/// Counters of the free filter's front level: 16 KiB.
pub const FILTER_FRONT_COUNTERS: u32 = 1 << 15;

/// With more entries in the live set than `FILTER_FRONT_LIVE` the front level is skipped: most of
/// its counters are not 0.
pub const FILTER_FRONT_LIVE: u64 = FILTER_FRONT_COUNTERS as u64 * 3 / 2;

/// `shift` of the front level for [`filter_index`].
pub const FILTER_FRONT_SHIFT: u64 = 64 - FILTER_FRONT_COUNTERS.trailing_zeros() as u64;

/// Counters in one element of the filter's arrays, which is a cache line.
pub const FILTER_LINE: u32 = 128;

/// The largest value of a counter.
pub const FILTER_FULL: u32 = 0xf;

/// Index of the counter that a block belongs to; `shift` is 64 − log2 of the number of counters.
///
/// Multiplicative (Fibonacci) hashing of the address in units of 8 bytes, the least alignment of
/// any allocator. The xor-shift before it breaks the regular distances of neighbouring blocks.
/// Without it, the live blocks of a heap of equal blocks collide with no other block or with a
/// third of them.
#[inline(always)]
pub const fn filter_index(pointer: u64, slot: u32, shift: u64) -> u64 {
    let key = (pointer >> 3) ^ ((slot as u64) << 52);
    (key ^ (key >> 12)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (shift & 63)
}

/// First bit of the counter with this index in its word; the word is index / 8, little-endian.
#[inline(always)]
pub const fn filter_bit(index: u64) -> u32 {
    (index as u32 & 7) << 2
}

/// The word with one more in the counter at `bit`; unchanged if the counter is full.
#[inline(always)]
pub const fn filter_raised(word: u32, bit: u32) -> u32 {
    let one = 1 << (bit & 31);
    if is_full(word, bit) { word } else { word.wrapping_add(one) }
}

/// The word with one less in the counter at `bit`; unchanged if the counter is full or empty.
#[inline(always)]
pub const fn filter_lowered(word: u32, bit: u32) -> u32 {
    let one = 1 << (bit & 31);
    let is_empty = word >> (bit & 31) & FILTER_FULL == 0;
    if is_full(word, bit) || is_empty { word } else { word.wrapping_sub(one) }
}

#[inline(always)]
const fn is_full(word: u32, bit: u32) -> bool {
    word >> (bit & 31) & FILTER_FULL == FILTER_FULL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_leaves_its_neighbours_alone() {
        for index in 0..8 {
            let bit = filter_bit(index);
            let others = 0x7777_7777 & !(0xf << bit);
            let mut word = others;
            for count in 1..=30u32 {
                word = filter_raised(word, bit);
                assert_eq!(word, others | count.min(15) << bit);
            }
            assert_eq!(filter_lowered(word, bit), word, "a full one stays");
            word = others | 2 << bit;
            for count in [1, 0, 0] {
                word = filter_lowered(word, bit);
                assert_eq!(word, others | count << bit);
            }
        }
    }
}
