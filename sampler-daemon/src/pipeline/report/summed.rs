//! A profile whose functions are summed in the daemon, over every stack. Only the largest stacks
//! are sent: of a hundred thousand stacks, a terminal shows a few lines.

use sampler_common::estimate::{Confidence, Estimate, Method, Moments, Row, RowMoments};
use sampler_common::profile::{Profile, Quantities, Quantity, summed, used};

/// The estimates of a row that functions need, without intervals. For weighted samples these are
/// sums. There may be a hundred thousand rows, and none of these estimates is sent.
pub(super) fn sums(row: &Row, confidence: Confidence) -> Quantities {
    let sum = |of: fn(&RowMoments) -> &Moments| {
        let each = || row.strata().map(|(_, moments)| of(moments));
        let estimate = Estimate {
            value: each().map(|of| of.sum).sum(),
            low: 0.0,
            high: f64::INFINITY,
            confidence,
            samples: each().map(|of| of.samples).sum(),
            method: Method::Weighted,
        };
        Quantity { estimate, moments: Moments::default() }
    };
    Quantities {
        alloc_objects: sum(|of| &of.alloc_objects),
        alloc_space: sum(|of| &of.alloc_space),
        inuse_objects: sum(|of| &of.inuse_objects),
        inuse_space: sum(|of| &of.inuse_space),
    }
}

/// Sums the largest functions, merges stacks that look the same, and keeps the `top` stacks (0:
/// all) with their intervals.
pub(super) fn keep(profile: &mut Profile, functions: usize, top: usize) {
    profile.functions = Some(summed(profile, functions));
    profile.merge_paths(|of, row| sums(row, of.confidence));
    if top > 0 {
        profile.stacks.truncate(top);
    }
    let made: Vec<Quantities> =
        profile.stacks.iter().map(|stack| profile.quantities_of(&stack.row)).collect();
    profile.stacks.iter_mut().zip(made).for_each(|(stack, made)| stack.quantities = made);
    let indices = profile.stacks.iter_mut().flat_map(|stack| &mut stack.locations);
    profile.locations = used(std::mem::take(&mut profile.locations), indices);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::encode::Encode as _;
    use sampler_common::encode::text::Text;

    fn profile() -> Profile {
        let text = include_str!("../../../../sampler-common/src/encode/golden/alloc.json");
        sampler_common::encode::json::read(text).expect("a profile")
    }

    fn shown(profile: &Profile, stacks: usize) -> String {
        let mut out = Vec::new();
        let text = Text { width: 100, color: false, rows: 4, stacks };
        text.encode(profile, &mut out).expect("it is written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_cut_profile_prints_the_same_text_as_the_whole() {
        let whole = profile();
        let confidence = whole.confidence;
        let mut cut = whole.clone();
        for stack in &mut cut.stacks {
            stack.quantities = sums(&stack.row, confidence);
        }
        keep(&mut cut, 4, 2);
        assert_eq!(cut.stacks.len(), 2);
        assert!(cut.locations.len() < whole.locations.len());
        assert_eq!(shown(&cut, 2), shown(&whole, 2));
    }
}
