//! Converts growth into the protocol's messages, and back.

use super::from_wire::{Within, each};
use super::number::number;
use crate::rpc::v1;
use sampler_common::estimate::{Confidence, Estimate, Growth, Median, Method, Share};
use sampler_common::leaks::{Grown, Held, Leak, Leaks};
use sampler_common::note::Note;
use sampler_common::profile::Line;

/// Growth as a message of the protocol.
pub fn leaks_to_wire(of: &Leaks) -> v1::Leaks {
    let stacks = of.stacks.iter().map(|leak| v1::Leak {
        pid: leak.pid,
        frames: leak.frames.iter().map(line_to_wire).collect(),
        grown: Some(to_wire(&leak.grown)),
    });
    v1::Leaks {
        confidence: of.confidence.level(),
        start_unix_ns: of.start_unix_ns,
        end_unix_ns: of.end_unix_ns,
        total: Some(to_wire(&of.total)),
        growing: of.growing,
        unseen: of.unseen,
        max_other_growth: of.max_other_growth,
        stacks: stacks.collect(),
        stacks_total: of.stacks_total,
        notes: of.notes.iter().map(Note::to_string).collect(),
    }
}

fn line_to_wire(of: &Line) -> v1::SourceLine {
    v1::SourceLine { function: of.function.clone(), file: of.file.clone(), line: of.line }
}

fn to_wire(of: &Grown) -> v1::Grown {
    let interval = |value, low, high| Some(v1::Interval { value, low, high });
    v1::Grown {
        growth: interval(of.growth.value, of.growth.low, of.growth.high),
        arrived: of.arrived,
        departed: of.departed,
        held: interval(of.held.value, of.held.low, of.held.high),
        held_samples: of.held.samples,
        age: Some(v1::Median { value_ns: of.age.value, low_ns: of.age.low, high_ns: of.age.high }),
        oldest_ns: of.oldest_ns,
        kept: of.kept.and_then(|kept| interval(kept.value, kept.low, kept.high)),
        history: of.history.iter().map(held_to_wire).collect(),
    }
}

fn held_to_wire(of: &Held) -> v1::HeldAt {
    let Held { unix_ns, value, low, high } = *of;
    v1::HeldAt { unix_ns, held: Some(v1::Interval { value, low, high }) }
}

/// Growth from the protocol, checked. The error is one line for people.
pub fn leaks_from_wire(of: v1::Leaks) -> Result<Leaks, String> {
    let confidence = Confidence::new(of.confidence).map_err(|error| error.to_string())?;
    let stacks = each(of.stacks, "stack", |leak| {
        let frames = leak.frames.into_iter();
        let frames = frames.map(|of| Line { function: of.function, file: of.file, line: of.line });
        let frames = frames.collect();
        Ok(Leak { pid: leak.pid, frames, grown: from_wire(leak.grown, confidence)? })
    })?;
    Ok(Leaks {
        confidence,
        start_unix_ns: of.start_unix_ns,
        end_unix_ns: of.end_unix_ns,
        total: from_wire(of.total, confidence).within("total")?,
        growing: of.growing,
        unseen: number("unseen", of.unseen)?,
        max_other_growth: number("max_other_growth", of.max_other_growth)?,
        stacks,
        stacks_total: of.stacks_total,
        notes: of.notes.into_iter().map(Note::from).collect(),
    })
}

fn from_wire(of: Option<v1::Grown>, confidence: Confidence) -> Result<Grown, String> {
    let of = of.ok_or("it has no growth")?;
    let (value, low, high) = interval(of.growth).within("growth")?;
    let growth = Growth { value, low, high };
    let (value, low, high) = interval(of.held).within("held")?;
    let (samples, method) = (of.held_samples, Method::Weighted);
    let age = of.age.ok_or("it has no age")?;
    let checked = |age: Option<f64>| age.map(|age| number("age", age)).transpose();
    let kept = of.kept.map(|kept| interval(Some(kept)).within("kept")).transpose()?;
    if let Some((_, low, high)) = kept
        && !(0.0 <= low && high <= 1.0)
    {
        return Err(format!("kept: {low} to {high} is no share"));
    }
    Ok(Grown {
        growth,
        arrived: of.arrived,
        departed: of.departed,
        held: Estimate { value, low, high, confidence, samples, method },
        age: Median {
            value: checked(age.value_ns)?,
            low: number("age", age.low_ns)?,
            high: checked(age.high_ns)?,
        },
        oldest_ns: of.oldest_ns,
        kept: kept.map(|(value, low, high)| Share { value, low, high }),
        history: each(of.history, "time of the history", |of| {
            let (value, low, high) = interval(of.held)?;
            Ok(Held { unix_ns: of.unix_ns, value, low, high })
        })?,
    })
}

/// Checks an interval, whose ends may be below 0: held memory may have shrunk.
fn interval(of: Option<v1::Interval>) -> Result<(f64, f64, f64), String> {
    let v1::Interval { value, low, high } = of.ok_or("it is missing")?;
    match [value, low, high].iter().all(|of| of.is_finite()) && low <= value && value <= high {
        true => Ok((value, low, high)),
        false => Err(format!("value {value} and its interval {low} to {high} make no sense")),
    }
}
