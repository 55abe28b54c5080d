//! Tests every format with profiles of a size that real machines have.

use super::csv::Csv;
use super::firefox::Firefox;
use super::fixture::{self, encoded};
use super::folded::Folded;
use super::jeprof::Jeprof;
use super::json::Json;
use super::otlp::Otlp;
use super::perfetto::Perfetto;
use super::pprof::Pprof;
use super::speedscope::Speedscope;
use super::svg::FlameGraph;
use super::{Encode, Measure};
use crate::profile::{Kind, Location, Profile, Stack};
use std::time::{Duration, Instant};

const STACKS: usize = 100_000;
/// A format takes about a second. Other tests run at the same time, and quadratic time takes
/// minutes.
const DEADLINE: Duration = Duration::from_secs(30);

fn formats() -> Vec<(&'static str, Box<dyn Encode + Sync>)> {
    vec![
        ("svg", Box::new(FlameGraph { measure: Measure::Space })),
        ("speedscope", Box::new(Speedscope)),
        ("csv", Box::new(Csv)),
        ("firefox", Box::new(Firefox)),
        ("perfetto", Box::new(Perfetto)),
        ("otlp", Box::new(Otlp)),
    ]
}

/// Earlier formats, which no test here times.
fn earlier() -> Vec<(&'static str, Box<dyn Encode + Sync>)> {
    vec![
        ("folded", Box::new(Folded)),
        ("jeprof", Box::new(Jeprof)),
        ("json", Box::new(Json)),
        ("pprof", Box::new(Pprof)),
    ]
}

/// `stacks` stacks of `depth` frames over 5,000 functions: they share their outer frames.
fn profile(stacks: usize, depth: usize) -> Profile {
    let mut profile = fixture::profile(Kind::Alloc);
    let lines = profile.locations[0].lines.clone();
    profile.locations = (0..5000)
        .map(|index| {
            let mut lines = lines.clone();
            lines[0].function = format!("ns::Class{}<int>::method{index}(int)", index / 20);
            Location { mapping: index % 4, address: u64::from(index) * 16, lines }
        })
        .collect();
    let model = profile.stacks.clone();
    profile.stacks = (0..stacks)
        .map(|index| {
            // 20 ways at each frame, until the index is used up.
            let mut way = index as u64 + 1;
            let root_first = (0..depth).map(|level| {
                let here = (way % 20) as u32 + level as u32 * 20;
                way /= 20;
                here % 5000
            });
            let mut locations: Vec<u32> = root_first.collect();
            locations.reverse();
            Stack { locations, ..model[index % model.len()].clone() }
        })
        .collect();
    profile.stacks_total = stacks as u64;
    profile
}

#[test]
fn many_stacks_are_encoded_before_the_deadline() {
    let profile = profile(STACKS, 30);
    for (name, format) in formats() {
        let start = Instant::now();
        let bytes = encoded(format.as_ref(), &profile);
        let took = start.elapsed();
        eprintln!("{name}: {STACKS} stacks, {} MB in {took:.2?}", bytes.len() / 1_000_000);
        assert!(took < DEADLINE, "{name} took {took:?}");
    }
}

#[test]
fn deep_stacks_do_not_recurse() {
    let profile = profile(50, 1000);
    for (name, format) in formats().into_iter().chain(earlier()) {
        // Recursion over frames would need a larger stack.
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let encode = || encoded(format.as_ref(), &profile).len();
        let bytes = std::thread::scope(|scope| small.spawn_scoped(scope, encode).unwrap().join());
        assert!(bytes.unwrap() > 1000, "{name}");
    }
}

#[test]
fn the_same_profile_gives_the_same_bytes() {
    for profile in [fixture::profile(Kind::Live), fixture::hostile(), profile(3000, 12)] {
        for (name, format) in formats().into_iter().chain(earlier()) {
            let first = encoded(format.as_ref(), &profile);
            assert!(first == encoded(format.as_ref(), &profile), "{name}");
        }
    }
}
