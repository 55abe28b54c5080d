//! The decision: whether a request is sampled, and how many sample points fall into it.
//!
//! All strategies but stride share one countdown of hazard ([`super::countdown`]). A request is
//! charged by its [`Design`].
//!
//! # Poisson
//!
//! The distances between the points of a Poisson process are exponential and memoryless. What the
//! countdown has left is memoryless too. So the first point is where the countdown ends. From there
//! on distances are drawn, more than can fall into the request. The number of points is Poisson
//! distributed with the request's hazard as its mean. The rest of the last distance is not kept:
//! the next request draws a fresh distance, which has the same distribution.
//!
//! # Stride
//!
//! A position grows by the bytes of every request. A request has one point for every multiple of n
//! that the position passes. The position only grows, so one atomic addition is the only shared
//! operation.

use super::countdown::{Cell, Random, Trial, offset, trial};
use super::design::Design;
use super::rate::{HAZARD_CERTAIN, Rate};
use super::strategy::Strategy;

/// Most points counted in a request that is not certain. The mean is below ln 100: P(more) < 10⁻¹⁵.
const MAX_POINTS: u32 = 32;

/// The result for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not sampled.
    Miss,
    /// Sampled.
    Hit {
        /// Sample points in the request: 1 unless the strategy is poisson or stride.
        hits: u32,
        /// 0-based offset of the (first) sampled byte.
        offset: u64,
    },
}

/// A [`Decision`] in numbers that always have a value, also after a miss.
///
/// The eBPF program uses this type. In an enum, the missing payload of a miss is a register that
/// was never written, which the verifier rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Sample points; 0 is [`Decision::Miss`].
    pub hits: u32,
    /// The offset of [`Decision::Hit`].
    pub offset: u64,
}

impl Drawn {
    const MISS: Drawn = Drawn { hits: 0, offset: 0 };
}

/// Charges a request of `size` bytes. `countdown` and `position` belong to one CPU (or thread);
/// both may start at 0.
#[inline(always)]
pub fn decide<C: Cell, R: Random>(
    design: Design,
    size: u64,
    countdown: &C,
    position: &C,
    random: &mut R,
) -> Decision {
    match draw_points(design, size, countdown, position, random) {
        Drawn { hits: 0, .. } => Decision::Miss,
        Drawn { hits, offset } => Decision::Hit { hits, offset },
    }
}

/// Charges a request as [`decide`] does, with the result in numbers.
#[inline(always)]
pub fn draw_points<C: Cell, P: Cell, R: Random>(
    design: Design,
    size: u64,
    countdown: &C,
    position: &P,
    random: &mut R,
) -> Drawn {
    // The word of a geometric design is its rate: nearly every call goes this way and takes nothing
    // apart.
    if design.word() <= HAZARD_CERTAIN {
        return per_byte(Rate::from_raw(design.word()), size, countdown, random);
    }
    if design.is_per_byte() {
        return per_byte(design.rate(), size, countdown, random);
    }
    let rate = design.rate().raw();
    if design.tag() == Strategy::Stride as u8 {
        return stride(design.stride_bytes(), size, position);
    }
    let hazard = random.opaque(design.charge(size));
    match trial(countdown, hazard, random) {
        Trial::Miss => Drawn::MISS,
        Trial::Hit { .. } if design.tag() == Strategy::Bernoulli as u8 => {
            Drawn { hits: 1, offset: 0 }
        }
        Trial::Hit { rest } => {
            let rest = random.opaque(rest);
            let hits = if hazard == HAZARD_CERTAIN { 1 } else { points(hazard, rest, random) };
            Drawn { hits, offset: offset(rest, rate, size) }
        }
    }
}

#[inline(always)]
fn per_byte<C: Cell, R: Random>(rate: Rate, size: u64, countdown: &C, random: &mut R) -> Drawn {
    match trial(countdown, rate.charge(size), random) {
        Trial::Miss => Drawn::MISS,
        Trial::Hit { rest } => {
            Drawn { hits: 1, offset: offset(random.opaque(rest), rate.raw(), size) }
        }
    }
}

/// Points in a request of `hazard`, the first of which is at `rest`.
///
/// Every distance is drawn. Distances that begin beyond the request are not counted, without a
/// branch. For each exit of the loop, the verifier of Linux 6.1 would follow the rest of the
/// program once more, and give up.
#[inline(always)]
fn points<R: Random>(hazard: u64, rest: u64, random: &mut R) -> u32 {
    let left = hazard.wrapping_sub(rest);
    let mut at = 0u64;
    let mut points = 1u64;
    let mut drawn = 1;
    while drawn < MAX_POINTS {
        let distance = random.distance();
        at = random.opaque(at.wrapping_add(distance));
        // The sign of at − left − 1: 1 where at ≤ left. Both are below 2^60.
        points = points.wrapping_add(at.wrapping_sub(left).wrapping_sub(1) >> 63);
        drawn = drawn.wrapping_add(1);
    }
    points as u32
}

#[inline(always)]
fn stride<C: Cell>(interval: u64, size: u64, position: &C) -> Drawn {
    let bytes = if size == 0 { 1 } else { size };
    let before = position.fetch_sub((bytes as i64).wrapping_neg()) as u64;
    // An interval of 0 would be a panic, which the eBPF verifier rejects.
    let (Some(done), Some(now)) =
        (before.checked_div(interval), before.wrapping_add(bytes).checked_div(interval))
    else {
        return Drawn::MISS;
    };
    let hits = now.wrapping_sub(done);
    if hits == 0 || now < done {
        return Drawn::MISS;
    }
    // The next multiple of the interval, as a byte of this request.
    let to_next = interval.wrapping_sub(before.wrapping_sub(done.wrapping_mul(interval)));
    let hits = if hits > u32::MAX as u64 { u32::MAX } else { hits as u32 };
    Drawn { hits, offset: to_next.wrapping_sub(1) }
}
