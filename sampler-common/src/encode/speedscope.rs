//! The file format of speedscope (<https://www.speedscope.app>), JSON.
//!
//! The format's schema (`file-format-schema.json` of version 1.25) has frames and weighted stacks,
//! and no place for an interval. So each quantity has three profiles to choose from: the estimates,
//! the low ends and the high ends of the stacks. Sums of ends, as speedscope makes them, are
//! further apart than the interval of the sum: too wide, never too narrow. The totals' intervals
//! are in the profiles' names.

use super::functions::functions;
use super::pprof::comments;
use super::{Encode, Measure, NO_STACK, interval, name};
use crate::estimate::Estimate;
use crate::profile::{Profile, Stack};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Write};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes the speedscope format: bytes and objects of the profile's kind, with the ends of their
/// intervals.
pub struct Speedscope;

/// The number of an estimate that a profile has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Value,
    Low,
    High,
}

impl Encode for Speedscope {
    fn encode(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let (functions, at) = functions(profile);
        write!(out, "{{\"$schema\":\"{SCHEMA}\",\"exporter\":\"sampler\",\"name\":")?;
        serde_json::to_writer(&mut *out, &title(profile))?;
        write!(out, ",\"activeProfileIndex\":0,\"comments\":")?;
        serde_json::to_writer(&mut *out, &comments(profile))?;
        write!(out, ",\n\"shared\":{{\"frames\":[")?;
        for function in &functions {
            let name = name::shown(function.name);
            let file = if function.file.is_empty() { function.module } else { function.file };
            let mut frame = json!({ "name": name, "file": name::shown(file) });
            if function.line > 0 {
                frame["line"] = function.line.into();
            }
            serde_json::to_writer(&mut *out, &frame)?;
            out.write_all(b",\n")?;
        }
        // The last frame stands for stacks without frames.
        write!(out, "{{\"name\":\"{NO_STACK}\"}}]}},\n\"profiles\":[")?;
        let samples = samples(profile, &at, functions.len());
        let mut first = true;
        for measure in [Measure::Space, Measure::Objects] {
            for end in [End::Value, End::Low, End::High] {
                let total = measure.of(&profile.totals, profile.kind).estimate;
                if end == End::High && !total.has_interval() {
                    continue;
                }
                out.write_all(if first { b"\n" } else { b",\n" })?;
                first = false;
                one_profile(profile, measure, end, &samples, out)?;
            }
        }
        out.write_all(b"]}\n")
    }
}

/// Every stack as a list of frames, root first. The list is the same in all profiles, so it is made
/// once.
fn samples(profile: &Profile, at: &[Vec<usize>], no_stack: usize) -> String {
    let mut text = String::from("[");
    for (index, stack) in profile.stacks.iter().enumerate() {
        text.push_str(if index == 0 { "[" } else { ",[" });
        let frames = stack.locations.iter().rev().flat_map(|index| &at[*index as usize]);
        let start = text.len();
        for frame in frames {
            // Writing to a string cannot fail.
            let _ = write!(text, "{frame},");
        }
        if text.len() == start {
            let _ = write!(text, "{no_stack},");
        }
        text.pop();
        text.push(']');
    }
    text.push(']');
    text
}

fn one_profile(
    profile: &Profile,
    measure: Measure,
    end: End,
    samples: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let unit = if measure == Measure::Space { "bytes" } else { "none" };
    write!(out, "{{\"type\":\"sampled\",\"name\":")?;
    serde_json::to_writer(&mut *out, &name_of(profile, measure, end))?;
    write!(out, ",\"unit\":\"{unit}\",\"startValue\":0,\"samples\":{samples},\n\"weights\":[")?;
    let mut sum = 0.0;
    for (index, stack) in profile.stacks.iter().enumerate() {
        let weight = weight(profile, stack, measure, end);
        sum += weight;
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}{weight}")?;
    }
    write!(out, "],\"endValue\":{sum}}}")
}

/// Whole bytes, or objects to a hundredth. In the profile of high ends, a stack without an upper
/// end has its estimate.
fn weight(profile: &Profile, stack: &Stack, measure: Measure, end: End) -> f64 {
    let Estimate { value, low, high, .. } = measure.of(&stack.quantities, profile.kind).estimate;
    let number = match end {
        End::Value => value,
        End::Low => low,
        End::High if high.is_finite() => high,
        End::High => value,
    };
    match measure {
        Measure::Space => number.round(),
        Measure::Objects => (number * 100.0).round() / 100.0,
    }
}

/// `allocated bytes: 1.30 GiB ±3% (1.26 GiB … 1.34 GiB)`; the names of ends say how to read them.
fn name_of(profile: &Profile, measure: Measure, end: End) -> String {
    let what = profile.what();
    let total = measure.of(&profile.totals, profile.kind).estimate;
    let (unit, total) = match measure {
        Measure::Space => ("bytes", interval::bytes(&total)),
        Measure::Objects => ("objects", interval::objects(&total)),
    };
    let percent = profile.confidence.level() * 100.0;
    match end {
        End::Value => format!("{what} {unit}: {total}"),
        End::Low => format!("{what} {unit}, low ends of stacks at {percent}% (sums are too low)"),
        End::High => {
            format!("{what} {unit}, high ends of stacks at {percent}% (sums are too high)")
        }
    }
}

fn title(profile: &Profile) -> String {
    let labels: Vec<String> =
        profile.pids.iter().take(4).map(|pid| profile.process_label(*pid)).collect();
    let more = if profile.pids.len() > labels.len() { ", …" } else { "" };
    let labels = labels.join(", ");
    format!("sampler {}, {}{more}", profile.kind.name(), name::shown(&labels))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use crate::profile::Kind;
    use serde_json::Value;

    fn written(profile: &Profile) -> (String, Value) {
        let text = String::from_utf8(fixture::encoded(&Speedscope, profile)).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    /// Checks what the schema requires of a file, and what speedscope checks when it reads one.
    fn check(file: &Value) {
        assert_eq!(file["$schema"], SCHEMA);
        let frames = file["shared"]["frames"].as_array().unwrap();
        for frame in frames {
            assert!(frame["name"].is_string());
            assert!(frame.get("file").is_none_or(Value::is_string));
            assert!(frame.get("line").is_none_or(|line| line.as_u64() > Some(0)));
        }
        for profile in file["profiles"].as_array().unwrap() {
            assert_eq!(profile["type"], "sampled");
            assert!(profile["name"].is_string() && profile["startValue"].is_number());
            assert!(["bytes", "none"].contains(&profile["unit"].as_str().unwrap()));
            let samples = profile["samples"].as_array().unwrap();
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            for sample in samples {
                let sample = sample.as_array().unwrap();
                assert!(!sample.is_empty());
                assert!(sample.iter().all(|at| (at.as_u64().unwrap() as usize) < frames.len()));
            }
            let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
            assert!((sum - profile["endValue"].as_f64().unwrap()).abs() <= 1e-9 * sum);
        }
    }

    #[test]
    fn golden() {
        let (text, file) = written(&fixture::profile(Kind::Alloc));
        check(&file);
        fixture::golden("alloc.speedscope.json", text);
    }

    #[test]
    fn stacks_read_back_as_they_were() {
        for profile in [fixture::profile(Kind::Live), fixture::profile(Kind::Alloc)] {
            let (_, file) = written(&profile);
            let frames = file["shared"]["frames"].as_array().unwrap();
            for (index, stack) in profile.stacks.iter().enumerate() {
                let expected: Vec<&str> =
                    profile.frames(stack).map(|line| line.function.as_str()).collect();
                let sample = file["profiles"][0]["samples"][index].as_array().unwrap();
                let of = |at: &Value| frames[at.as_u64().unwrap() as usize]["name"].as_str();
                assert_eq!(sample.iter().filter_map(of).collect::<Vec<_>>(), expected);
                let space = stack.quantities.space(profile.kind).estimate;
                let objects = stack.quantities.objects(profile.kind).estimate;
                let ends =
                    [space.value, space.low, space.high, objects.value, objects.low, objects.high];
                for (end, number) in ends.into_iter().enumerate() {
                    let weight = file["profiles"][end]["weights"][index].as_f64().unwrap();
                    assert!((weight - number).abs() <= 0.5, "{weight} {number}");
                }
            }
        }
    }

    #[test]
    fn odd_profiles_are_valid() {
        for profile in [fixture::hostile(), fixture::empty(), fixture::stride()] {
            check(&written(&profile).1);
        }
        let stride = written(&fixture::stride()).1;
        assert_eq!(stride["profiles"].as_array().unwrap().len(), 4, "no upper ends");
        assert!(stride["profiles"][0]["name"].as_str().unwrap().contains("no interval"));
    }
}
