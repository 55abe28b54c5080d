//! The difference of two profiles of the same processes since attach, as a profile: for formats
//! without comparisons.

use super::grown;
use crate::estimate::{Difference, Estimate, Moments, Row, Side, difference};
use crate::note::{Note, Part};
use crate::profile::{Line, Location, Mapping, Profile, Quantities, Quantity, Stack, Window};
use std::collections::HashMap;

/// A location in the code: path, build id, address, lines.
type Place<'p> = (&'p str, &'p str, u64, &'p [Line]);

/// `after` − `before`, stack by stack: the allocations in between, and the growth of held memory,
/// which may be negative. Both are whole profiles since attach, of one kind and estimator.
///
/// Only the totals have intervals. All samples of `before` are in `after`, so the interval of the
/// allocations is that of the samples in between. Blocks that are held at both times are in both
/// profiles, so the interval of held memory is wider than necessary (see the module `relation`).
/// Stacks carry their values, without intervals or moments.
pub fn growth(before: &Profile, after: &Profile) -> Profile {
    let mut stacks: HashMap<(u32, Vec<u32>), Stack> = HashMap::new();
    let mut tables = Tables::of(after);
    for stack in &after.stacks {
        add(&mut stacks, stack, stack.locations.clone(), 1.0);
    }
    for stack in &before.stacks {
        let places = stack.locations.iter();
        let places = places.map(|index| tables.place(before, *index)).collect();
        add(&mut stacks, stack, places, -1.0);
    }
    let Tables { mappings, locations, .. } = tables;
    let mut stacks: Vec<Stack> = stacks.into_values().collect();
    let size = |of: &Stack| of.quantities.space(after.kind).estimate.value.abs();
    stacks.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.locations.cmp(&b.locations)));
    let window = Window { start_unix_ns: before.time_unix_ns, end_unix_ns: after.time_unix_ns };
    let exact = after.exact.zip(before.exact).map(|(mut after, before)| {
        after.alloc_objects = after.alloc_objects.saturating_sub(before.alloc_objects);
        after.alloc_space = after.alloc_space.saturating_sub(before.alloc_space);
        after
    });
    let mut lost = after.lost.clone();
    for of in &mut lost {
        let earlier = before.lost.iter().find(|earlier| earlier.outcome == of.outcome);
        of.samples = of.samples.saturating_sub(earlier.map_or(0, |earlier| earlier.samples));
        (of.alloc_space, of.alloc_objects) = (None, None);
    }
    let mut notes = vec![Note::Part(Part::Difference)];
    notes.extend(after.notes.iter().cloned());
    Profile {
        duration_ns: window.length_ns(),
        window: Some(window),
        totals: totals(before, after),
        exact,
        samples: after.samples.saturating_sub(before.samples),
        lost,
        mappings,
        locations,
        stacks_total: stacks.len() as u64,
        stacks,
        notes,
        strategies: after.strategies.clone(),
        sources: after.sources.clone(),
        pids: after.pids.clone(),
        process_names: after.process_names.clone(),
        reference: after.reference.clone(),
        functions: None,
        cost: None,
        ..*after
    }
}

/// The tables of a profile, to which locations of another profile are added.
struct Tables<'p> {
    mappings: Vec<Mapping>,
    locations: Vec<Location>,
    places: HashMap<Place<'p>, u32>,
}

impl<'p> Tables<'p> {
    fn of(profile: &'p Profile) -> Tables<'p> {
        let places = (0..).zip(&profile.locations);
        Tables {
            mappings: profile.mappings.clone(),
            locations: profile.locations.clone(),
            places: places.map(|(index, of)| (place(profile, of), index)).collect(),
        }
    }

    /// The index of a location of `profile` in these tables.
    fn place(&mut self, profile: &'p Profile, index: u32) -> u32 {
        let location = &profile.locations[index as usize];
        let Tables { mappings, locations, places } = self;
        *places.entry(place(profile, location)).or_insert_with(|| {
            let wanted = &profile.mappings[location.mapping as usize];
            let known = mappings.iter().position(|mapping| mapping == wanted);
            let mapping = known.unwrap_or_else(|| {
                mappings.push(wanted.clone());
                mappings.len() - 1
            });
            locations.push(Location { mapping: mapping as u32, ..location.clone() });
            locations.len() as u32 - 1
        })
    }
}

fn place<'p>(profile: &'p Profile, location: &'p Location) -> Place<'p> {
    let mapping = &profile.mappings[location.mapping as usize];
    (&mapping.path, &mapping.build_id, location.address, &location.lines)
}

fn add(
    stacks: &mut HashMap<(u32, Vec<u32>), Stack>,
    stack: &Stack,
    locations: Vec<u32>,
    sign: f64,
) {
    let sum = stacks.entry((stack.pid, locations.clone())).or_insert_with(|| {
        let mut quantities = stack.quantities;
        each(&mut quantities).into_iter().for_each(|of| *of = nothing(of));
        Stack { pid: stack.pid, locations, row: Row::default(), quantities }
    });
    let mut added = stack.quantities;
    for (to, from) in each(&mut sum.quantities).into_iter().zip(each(&mut added)) {
        let value = to.estimate.value + sign * from.estimate.value;
        to.estimate = Estimate { value, low: value, high: value, ..to.estimate };
    }
}

fn nothing(of: &Quantity) -> Quantity {
    let estimate = Estimate { value: 0.0, low: 0.0, high: 0.0, samples: 0, ..of.estimate };
    Quantity { estimate, moments: Moments::default() }
}

fn each(of: &mut Quantities) -> [&mut Quantity; 4] {
    let Quantities { alloc_objects, alloc_space, inuse_objects, inuse_space } = of;
    [alloc_objects, alloc_space, inuse_objects, inuse_space]
}

fn totals(before: &Profile, after: &Profile) -> Quantities {
    let side = |profile: &Profile, of: &Quantity, is_held: bool| Side {
        moments: of.moments,
        interval_bytes: profile.reference.interval_bytes,
        unseen: profile.reference.most_unseen(is_held),
        scale: 1.0,
    };
    let (mut from, mut to) = (before.totals, after.totals);
    let made = each(&mut from).into_iter().zip(each(&mut to)).enumerate();
    for (index, (from, to)) in made {
        // The first two quantities are of allocations.
        let is_held = index > 1;
        let (a, b) = (side(before, from, is_held), side(after, to, is_held));
        let Difference { value, low, high, .. } = match is_held {
            false => grown(&a, &b, after.confidence),
            true => difference(&a, &b, after.confidence),
        };
        let samples = to.estimate.samples.saturating_sub(from.estimate.samples);
        to.estimate = Estimate { value, low, high, samples, ..to.estimate };
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::fixture;
    use crate::profile::Kind;

    /// The name of the leaf, and the four values.
    fn rows(of: &Profile) -> Vec<(String, [f64; 4])> {
        let row = |stack: &Stack| {
            let mut quantities = stack.quantities;
            let name = of.frames(stack).last().map(|line| line.function.clone());
            (name.unwrap_or_default(), each(&mut quantities).map(|of| of.estimate.value))
        };
        of.stacks.iter().map(row).collect()
    }

    #[test]
    fn growth_from_an_empty_profile_is_the_whole_profile() {
        let after = fixture::profile(Kind::Alloc);
        let mut before = after.clone();
        before.stacks.clear();
        before.locations.clear();
        before.mappings.clear();
        let whole = growth(&before, &after);
        let mut expected = rows(&after);
        let mut found = rows(&whole);
        expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(found, expected);
        let none = growth(&after, &after);
        assert!(rows(&none).iter().all(|(_, values)| *values == [0.0; 4]));
        assert_eq!((none.samples, none.duration_ns), (0, 0));
        assert_eq!(none.totals.alloc_space.estimate.value, 0.0);
        assert_eq!(none.exact.map(|of| of.alloc_space), Some(0));
    }

    #[test]
    fn a_stack_without_held_bytes_has_negative_growth() {
        let before = fixture::profile(Kind::Live);
        let mut after = before.clone();
        // Another process image with different tables, and without the largest stack.
        let gone = after.stacks.remove(0);
        after.locations.reverse();
        let last = after.locations.len() as u32 - 1;
        for stack in &mut after.stacks {
            stack.locations.iter_mut().for_each(|index| *index = last - *index);
        }
        let growth = growth(&before, &after);
        assert_eq!(growth.locations.len(), before.locations.len(), "no place is there twice");
        let freed: Vec<f64> =
            growth.stacks.iter().map(|of| of.quantities.inuse_space.estimate.value).collect();
        assert_eq!(freed[0], -gone.quantities.inuse_space.estimate.value);
        assert!(freed[1..].iter().all(|value| *value == 0.0), "{freed:?}");
    }
}
