//! The draw: an exponential variate by integers only.

/// −ln U for U uniform on (0, 1], from 64 random bits; raw hazard units, 1 … below
/// [`HAZARD_CERTAIN`](super::rate::HAZARD_CERTAIN).
#[inline(always)]
pub const fn draw(random: u64) -> u64 {
    let _ = random;
    todo!()
}
