//! Tests of all formats with as many stacks, and as deep ones, as real machines have.

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
/// A format takes about a second, and more while other tests run. A format whose time grows with
/// the square of the stacks would take minutes.
const DEADLINE: Duration = Duration::from_secs(30);

/// Formats whose time a test measures.
fn timed() -> Vec<(&'static str, Box<dyn Encode + Sync>)> {
    vec![
        ("svg", Box::new(FlameGraph { measure: Measure::Space })),
        ("speedscope", Box::new(Speedscope)),
        ("csv", Box::new(Csv)),
        ("firefox", Box::new(Firefox)),
        ("perfetto", Box::new(Perfetto)),
        ("otlp", Box::new(Otlp)),
    ]
}

/// Formats whose time no test measures.
fn untimed() -> Vec<(&'static str, Box<dyn Encode + Sync>)> {
    vec![
        ("folded", Box::new(Folded)),
        ("jeprof", Box::new(Jeprof)),
        ("json", Box::new(Json)),
        ("pprof", Box::new(Pprof)),
    ]
}

/// A profile of `stacks` different stacks of `depth` frames each, over 5,000 functions.
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
            // The digits of the index to base 20 choose the functions of the outermost frames.
            let mut digits = index as u64 + 1;
            let root_first = (0..depth).map(|level| {
                let function = (digits % 20) as u32 + level as u32 * 20;
                digits /= 20;
                function % 5000
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
    for (name, format) in timed() {
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
    for (name, format) in timed().into_iter().chain(untimed()) {
        // Recursion over frames would overflow this stack.
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let encode = || encoded(format.as_ref(), &profile).len();
        let bytes = std::thread::scope(|scope| thread.spawn_scoped(scope, encode).unwrap().join());
        assert!(bytes.unwrap() > 1000, "{name}");
    }
}

#[test]
fn the_same_profile_gives_the_same_bytes() {
    for profile in [fixture::profile(Kind::Live), fixture::hostile(), profile(3000, 12)] {
        for (name, format) in timed().into_iter().chain(untimed()) {
            let first = encoded(format.as_ref(), &profile);
            assert!(first == encoded(format.as_ref(), &profile), "{name}");
        }
    }
}
