//! A fair share.

/// The most that each may have, so that all together have no more than `room`. Whoever needs less
/// than an equal part leaves the rest to the others (max-min fairness). Infinite if the room is
/// enough for all.
pub fn share(room: f64, mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    let (mut rest, mut sharers) = (room, rates.len() as f64);
    for rate in rates {
        if rate > rest / sharers {
            return rest / sharers;
        }
        rest -= rate;
        sharers -= 1.0;
    }
    f64::INFINITY
}
