//! Lifetimes as a table for people: a line for each stack, named by its first function that is no
//! allocator.

use super::layout::{right, wrapped};
use super::samples;
use crate::encode::callers::callers;
use crate::encode::name;
use crate::estimate::{Median, Share, plus_minus};
use crate::lifetimes::{Lifetime, Lifetimes};
use crate::units::{human_bytes, human_duration};
use std::time::Duration;

/// The table in `width` columns, at least 60.
pub fn lifetimes(of: &Lifetimes, width: usize) -> String {
    let width = width.max(60);
    let percent = (of.confidence.level() * 1e9).round() / 1e7;
    let mut out = format!("How long memory is held, ± at {percent}%\n");
    for note in &of.notes {
        let lines = wrapped(&format!("note: {}", name::shown(&note.to_string())), width);
        out.extend(lines.iter().map(|line| format!("{line}\n")));
    }
    let heads = ["BYTES×S", "±", "MEDIAN", "≤1ms", "≤1s", "SAMPLES", "HELD"];
    out += &row(heads.map(str::to_owned), &["FUNCTION"], width);
    out += &row(numbers(&of.total), &["(all)"], width);
    for stack in &of.stacks {
        let frames: Vec<&str> = stack.frames.iter().map(String::as_str).collect();
        out += &row(numbers(&stack.lifetime), &frames, width);
    }
    let more = of.stacks_total.saturating_sub(of.stacks.len() as u64);
    if more > 0 {
        out += &format!("({more} more stacks: --top)\n");
    }
    out
}

fn numbers(of: &Lifetime) -> [String; 7] {
    [
        human_bytes(of.byte_seconds.value),
        plus_minus(&of.byte_seconds),
        median(of.median),
        percent(of.within_1ms),
        percent(of.within_1s),
        samples(of.samples),
        samples(of.held),
    ]
}

/// `> 5 m 03 s` if half of the blocks live longer than was observed.
fn median(of: Median) -> String {
    match of.value {
        Some(ns) if ns < 1e3 => "<1 µs".to_owned(),
        Some(ns) if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        Some(ns) => human_duration(Duration::from_nanos(ns as u64)),
        None if of.low > 0.0 => format!(">{}", human_duration(Duration::from_nanos(of.low as u64))),
        None => "?".to_owned(),
    }
}

/// A share without its interval, which does not fit; `?` if the share is unknown.
fn percent(of: Share) -> String {
    if of.high - of.low > 0.9 { "?".to_owned() } else { format!("{:.0}%", 100.0 * of.value) }
}

fn row(numbers: [String; 7], frames: &[&str], width: usize) -> String {
    let widths = [8, 5, 10, 4, 4, 7, 6];
    let cells = numbers.iter().zip(widths).map(|(text, width)| right(text, width));
    let line = cells.collect::<Vec<_>>().join(" ");
    let room = width.saturating_sub(super::layout::columns(&line) + 2).max(8);
    format!("{line}  {}\n", callers(frames, "", room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Confidence, Moments, Step, Weights};
    use crate::lifetimes::Stack;

    fn lifetime(freed_ns: &[f64], held_ns: &[f64]) -> Lifetime {
        let weights = |count| {
            let mut weights = Weights::default();
            (0..count).for_each(|_| weights.add_sample(1000.0));
            weights
        };
        let mut sum = Moments::default();
        let mut steps = Vec::new();
        for (ages, freed, censored) in [(freed_ns, 1, 0), (held_ns, 0, 1)] {
            for age_ns in ages {
                sum.add_sample(age_ns / 1e6, 0.5);
                let (freed, censored) = (weights(freed), weights(censored));
                steps.push(Step { age_ns: *age_ns, freed, censored });
            }
        }
        let counts = (freed_ns.len() as u64, held_ns.len() as u64);
        Lifetime::new(steps, &sum, counts, 1.21, Confidence::DEFAULT)
    }

    fn page() -> Lifetimes {
        let stack = |frames: &[&str], lifetime| Stack {
            pid: 7,
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            lifetime,
        };
        let short = lifetime(&[5e5; 40], &[]);
        let kept = lifetime(&[], &[300e9; 20]);
        Lifetimes {
            confidence: Confidence::DEFAULT,
            time_unix_ns: 1,
            total: lifetime(&[5e5; 40], &[300e9; 20]),
            stacks: vec![
                stack(&["main", "cache::insert", "operator new(unsigned long)"], kept),
                stack(&["main", "parse", "malloc"], short),
                stack(&["malloc"], lifetime(&[2e9], &[])),
            ],
            stacks_total: 5,
            notes: vec!["3 samples were freed unseen".into()],
        }
    }

    #[test]
    fn the_table_fits_80_columns() {
        let text = lifetimes(&page(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let expected = [
            "How long memory is held, ± at 95%",
            "note: 3 samples were freed unseen",
            " BYTES×S     ±     MEDIAN ≤1ms  ≤1s SAMPLES   HELD  FUNCTION",
        ];
        assert_eq!(text.lines().take(3).collect::<Vec<_>>(), expected);
        assert!(text.contains("cache::insert ← main") && text.contains("parse ← main"), "{text}");
        // The kept blocks live longer than this, for an unknown time.
        assert!(text.contains(">4 m 32 s   0%   0%      20     20"), "{text}");
        assert!(text.contains("500 µs 100% 100%      40      0"), "{text}");
        assert!(text.ends_with("(2 more stacks: --top)\n"), "{text}");
    }

    #[test]
    fn json_has_every_number() {
        let json = crate::encode::lifetimes::json(&page());
        assert_eq!(json["stacks"][0]["frames"][1], "cache::insert");
        assert!(json["stacks"][0]["median_ns"]["value"].is_null());
        assert!(json["stacks"][0]["median_ns"]["low"].as_f64().unwrap() > 2e11);
        assert_eq!(json["stacks"][1]["within_1ms"]["value"], 1.0);
        let sum = &json["total"]["byte_seconds"];
        assert!(sum["low"].as_f64().unwrap() < sum["value"].as_f64().unwrap());
        assert_eq!(
            (json["total"]["freed"].as_u64(), json["total"]["held"].as_u64()),
            (Some(40), Some(20))
        );
    }
}
