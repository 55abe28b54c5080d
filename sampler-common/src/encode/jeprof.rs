//! The heap profile text that `jeprof` and `pprof` read: jemalloc's `heap_v2`.
//!
//! Plainly: those tools take the counts and bytes of a stack for raw sums of samples, and scale the
//! sums up. Our numbers are unbiased already, sample by sample, which no scaling of a sum can
//! achieve. So the file has numbers that the tool's scaling turns into ours.
//!
//! # Change of variables
//!
//! From n objects and s bytes of a stack, and the rate r of the header, the tools compute
//!
//! ```text
//! N = n·f,  B = s·f,  f = 1/(1 − e^(−m/r)),  m = s/n
//! ```
//!
//! N and B have the same factor, so the mean size is m = B/N. Thus f is known from the wanted N and
//! B, and n = N/f, s = B/f. Source: "jemalloc profiling internals", its last section.
//!
//! The file has integers, so n·f is wrong by up to f/2 objects. At a rate of half a megabyte f is
//! 8,192 for objects of 64 bytes. For mixed sizes n is hardly ever near a whole number. The rate of
//! the header need not be the sampling interval, as no number is a raw sum. The rate is 2 (at 1
//! some tools scale and others do not). Then f is 1 as soon as objects have 75 bytes on average.
//! For a whole n, the bytes are the s that makes s·f nearest to B.
//!
//! The format cannot express objects without bytes. If there are fewer bytes than √(2·objects)
//! (mainly `malloc(0)`), the bytes are right and the objects too few. Rows without bytes are left
//! out.

use super::address::Space;
use super::pprof::comments;
use super::{Encode, name};
use crate::profile::{Profile, Quantity, Stack};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The rate in the header, r.
pub const RATE: u64 = 2;

/// Maximum rounds of Newton's iteration, which needs fewer than 10.
const MAX_NEWTON_ROUNDS: usize = 50;

/// Writes the `heap_v2` text: a header, a line for each stack with held or allocated bytes, leaf
/// first, and the mappings.
///
/// Each mapping has an address range of its own. The format has no room for names: the tools look
/// addresses up in the mapped files.
pub struct Jeprof;

/// Raw numbers of objects and bytes that a tool scales to the right ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pair {
    objects: u64,
    bytes: u64,
}

impl Encode for Jeprof {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let rows: Vec<(Pair, Pair, &Stack)> = profile.stacks.iter().map(pairs).collect();
        let rows = rows.into_iter().filter(|(live, alloc, _)| live.bytes + alloc.bytes > 0);
        let rows: Vec<_> = rows.collect();
        let sum = |pick: fn(&(Pair, Pair, &Stack)) -> Pair| {
            rows.iter().map(pick).fold(Pair::default(), |sum, of| Pair {
                objects: sum.objects.saturating_add(of.objects),
                bytes: sum.bytes.saturating_add(of.bytes),
            })
        };
        let header = counts(sum(|row| row.0), sum(|row| row.1));
        writeln!(out, "heap profile: {header} @ heap_v2/{RATE}")?;
        for comment in comments(profile) {
            writeln!(out, "# {}", name::shown(&comment))?;
        }
        let space = Space::of(profile);
        for (live, alloc, stack) in &rows {
            writeln!(out, "{} @{}", counts(*live, *alloc), addresses(profile, &space, stack))?;
        }
        writeln!(out, "\nMAPPED_LIBRARIES:")?;
        for (index, mapping) in profile.mappings.iter().enumerate() {
            let range = space.range(index);
            let (start, limit, offset) = (range.start, range.limit, range.file_offset);
            let path = name::shown(&mapping.path);
            writeln!(out, "{start:x}-{limit:x} r-xp {offset:08x} 00:00 0 {path}")?;
        }
        Ok(())
    }
}

/// `held: bytes [allocated: bytes]`.
fn counts(live: Pair, alloc: Pair) -> String {
    format!("{}: {} [{}: {}]", live.objects, live.bytes, alloc.objects, alloc.bytes)
}

fn pairs(stack: &Stack) -> (Pair, Pair, &Stack) {
    let of = |objects: &Quantity, bytes: &Quantity| {
        Pair::scaled_by_tools_to(objects.estimate.value, bytes.estimate.value)
    };
    let all = &stack.quantities;
    (of(&all.inuse_objects, &all.inuse_space), of(&all.alloc_objects, &all.alloc_space), stack)
}

/// Return addresses: one more than the call's address, since tools subtract one. Some tools do not
/// subtract one from the first address, which then is in the same function all the same.
fn addresses(profile: &Profile, space: &Space, stack: &Stack) -> String {
    let mut out = String::new();
    for index in &stack.locations {
        let location = &profile.locations[*index as usize];
        let address = space.range(location.mapping as usize).address(location.address);
        // Writing to a string cannot fail.
        let _ = write!(out, " {:#x}", address + 1);
    }
    // A line without an address is invalid. No mapping contains address 1.
    if out.is_empty() { " 0x1".to_owned() } else { out }
}

impl Pair {
    /// The whole numbers that tools scale to `objects` and `bytes`, as nearly as possible.
    fn scaled_by_tools_to(objects: f64, bytes: f64) -> Pair {
        let bytes = bytes.round();
        if !(bytes >= 1.0 && bytes.is_finite()) {
            return Pair::default();
        }
        let objects = objects.max(1.0);
        let wanted = objects * -(-bytes / objects / RATE as f64).exp_m1();
        // The whole number around `wanted` with the least error.
        let around = [wanted.floor(), wanted.ceil()].map(|n| n.max(1.0));
        let candidates = around.into_iter().flat_map(|n| {
            let s = raw_bytes(n, bytes);
            [s.floor(), s.ceil()].map(|s| (n, s.max(1.0)))
        });
        let error = |(n, s): &(f64, f64)| {
            let (got_objects, got_bytes) = scaled(*n, *s);
            (got_bytes / bytes - 1.0).abs() + (got_objects / objects - 1.0).abs()
        };
        let best = candidates.min_by(|a, b| error(a).total_cmp(&error(b)));
        let (n, s) = best.unwrap_or((1.0, bytes));
        // Tools count in i64.
        Pair { objects: (n as u64).min(i64::MAX as u64), bytes: (s as u64).min(i64::MAX as u64) }
    }
}

/// The numbers to which the tools scale n objects and s bytes.
fn scaled(n: f64, s: f64) -> (f64, f64) {
    let factor = -1.0 / (-s / n / RATE as f64).exp_m1();
    (n * factor, s * factor)
}

/// The s that the tools scale to `bytes`, given n objects; 0 if there is none (c ≤ 1).
///
/// s = nr·x with x = c·(1 − e^(−x)), c = B/(nr).
fn raw_bytes(n: f64, bytes: f64) -> f64 {
    let unit = n * RATE as f64;
    let c = bytes / unit;
    if c <= 1.0 {
        return 0.0;
    }
    // x − c·(1 − e^(−x)) is convex and positive at c: Newton's iteration falls to the root.
    let mut x = c;
    for _ in 0..MAX_NEWTON_ROUNDS {
        let step = (x + c * (-x).exp_m1()) / (1.0 - c * (-x).exp());
        x -= step;
        if step.abs() <= 1e-15 * x {
            break;
        }
    }
    unit * x
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::profile::Kind;
    use proptest::prelude::*;

    fn written(profile: &Profile) -> String {
        String::from_utf8(fixture::encoded(&Jeprof, profile)).unwrap()
    }

    /// Reads numbers as jeprof and pprof document it, from a line `n: s [n: s] @ …` and the rate of
    /// the header.
    fn read(line: &str, rate: f64) -> [(f64, f64); 2] {
        let numbers: Vec<f64> = line
            .split('@')
            .next()
            .unwrap()
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        [(numbers[0], numbers[1]), (numbers[2], numbers[3])].map(|(n, s)| match n {
            0.0 => (0.0, 0.0),
            n => {
                let factor = 1.0 / (1.0 - (-(s / n) / rate).exp());
                (n * factor, s * factor)
            }
        })
    }

    fn rate(text: &str) -> f64 {
        text.lines().next().unwrap().rsplit_once("@ heap_v2/").unwrap().1.parse().unwrap()
    }

    #[test]
    fn golden() {
        fixture::golden("alloc.heap_v2.txt", written(&fixture::profile(Kind::Alloc)));
    }

    #[test]
    fn every_stack_reads_back() {
        for profile in [fixture::profile(Kind::Alloc), fixture::hostile()] {
            let text = written(&profile);
            let lines = text.lines().filter(|line| line.contains("] @ 0x"));
            let (mut rows, mut total) = (0, 0.0);
            for (line, stack) in lines.zip(&profile.stacks) {
                rows += 1;
                let of = &stack.quantities;
                let [held, allocated] = read(line, rate(&text));
                for (got, quantity) in [
                    (held.0, of.inuse_objects),
                    (held.1, of.inuse_space),
                    (allocated.0, of.alloc_objects),
                    (allocated.1, of.alloc_space),
                ] {
                    assert!((got - quantity.estimate.value).abs() <= 1.0, "{line}: {quantity:?}");
                }
                total += allocated.1;
            }
            assert_eq!(rows, profile.stacks.len(), "{text}");
            let truth = profile.totals.alloc_space.estimate.value;
            assert!((total - truth).abs() <= rows as f64, "{total} {truth}");
        }
    }

    /// Negative control: tools do not get the true numbers from the numbers themselves, nor from
    /// raw sums with the real interval.
    #[test]
    fn unadjusted_numbers_are_scaled_wrongly_by_tools() {
        let interval = fixture::INTERVAL_BYTES as f64;
        let line = "1000: 65536000 [0: 0] @ 0x1";
        let [(_, bytes), _] = read(line, interval);
        assert!(bytes > 8.0 * 65_536_000.0, "{bytes}");
        // 4 samples of 16 bytes and 1 of 1 MiB, summed and then scaled.
        let each = |size: f64| size / (1.0 - (-size / interval).exp());
        let truth = 4.0 * each(16.0) + each(1048576.0);
        let [(objects, bytes), _] = read("5: 1048640 [0: 0] @ 0x1", interval);
        assert!((bytes / truth - 1.0).abs() > 0.03, "{bytes} {truth}");
        assert!(objects < 20.0, "and there are 131,073: {objects}");
        let pair = Pair::scaled_by_tools_to(131_073.2, truth);
        let line = format!(
            "{} [0: 0] @ 0x1",
            [pair.objects, pair.bytes].map(|n| n.to_string()).join(": ")
        );
        let [(objects, bytes), _] = read(&line, RATE as f64);
        assert!((bytes - truth).abs() < 2.0 && (objects - 131_073.2).abs() < 2.0, "{line}");
    }

    #[test]
    fn empty_and_hostile_profiles_are_valid() {
        let text = written(&fixture::empty());
        assert!(text.starts_with("heap profile: 0: 0 [0: 0] @ heap_v2/2\n"), "{text}");
        let text = written(&fixture::hostile());
        assert!(text.contains("] @ 0x1\n"), "a stack without frames keeps its bytes: {text}");
        assert!(text.lines().all(|line| !line.contains('\u{1b}')), "{text}");
        assert_eq!(Pair::scaled_by_tools_to(5.0, 0.0), Pair::default());
        assert_eq!(Pair::scaled_by_tools_to(0.0, 0.2), Pair::default());
        assert_eq!(Pair::scaled_by_tools_to(0.3, 10.0).objects, 1);
    }

    proptest! {
        #[test]
        fn tools_scale_numbers_back_to_the_estimates(exponent in 0f64..25.0, mean_exponent in 0f64..16.0) {
            let (objects, mean) = (exponent.exp(), mean_exponent.exp());
            let bytes = objects * mean;
            let pair = Pair::scaled_by_tools_to(objects, bytes);
            let (got_objects, got_bytes) = scaled(pair.objects as f64, pair.bytes as f64);
            // Half a unit of the written number, times f, and the effect of one number's rounding
            // on the other.
            let factor = -1.0 / (-mean / RATE as f64).exp_m1();
            prop_assert!((got_bytes - bytes).abs() <= 2.0 * factor + 1e-9 * bytes, "{pair:?} {got_bytes}");
            prop_assert!((got_objects - objects).abs() <= 2.0 * factor + 1e-9 * objects, "{pair:?} {got_objects}");
        }

        #[test]
        fn objects_are_zero_exactly_where_bytes_are(objects in -1f64..1e30, bytes in -1f64..1e30) {
            let pair = Pair::scaled_by_tools_to(objects, bytes);
            // jeprof divides by 1 − e^(−s/n/r).
            prop_assert!((pair.objects == 0) == (pair.bytes == 0), "{pair:?}");
        }
    }
}
