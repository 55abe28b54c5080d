//! Conversion of lifetimes to the protocol's form, and back.

use super::from_wire::{Within, each};
use super::number::{moments, number};
use super::to_wire::moments_to_wire;
use crate::rpc::v1;
use sampler_common::estimate::{Confidence, Estimate, Median, Method, Share};
use sampler_common::lifetimes::{Lifetime, Lifetimes, Stack};
use sampler_common::note::Note;

/// The protocol's form of lifetimes.
pub fn lifetimes_to_wire(of: &Lifetimes) -> v1::Lifetimes {
    let stacks = of.stacks.iter().map(|stack| v1::LifetimeStack {
        pid: stack.pid,
        frames: stack.frames.clone(),
        lifetime: Some(to_wire(&stack.lifetime)),
    });
    v1::Lifetimes {
        confidence: of.confidence.level(),
        time_unix_ns: of.time_unix_ns,
        total: Some(to_wire(&of.total)),
        stacks: stacks.collect(),
        stacks_total: of.stacks_total,
        notes: of.notes.iter().map(Note::to_string).collect(),
    }
}

fn to_wire(of: &Lifetime) -> v1::Lifetime {
    let interval = |value, low, high| Some(v1::Interval { value, low, high });
    let share = |of: Share| interval(of.value, of.low, of.high);
    let sum = &of.byte_seconds;
    v1::Lifetime {
        samples: of.samples,
        freed: of.freed,
        held: of.held,
        byte_seconds: interval(sum.value, sum.low, sum.high),
        median: Some(v1::Median {
            value_ns: of.median.value,
            low_ns: of.median.low,
            high_ns: of.median.high,
        }),
        within_1ms: share(of.within_1ms),
        within_1s: share(of.within_1s),
        moments: Some(moments_to_wire(&of.moments)),
    }
}

/// Lifetimes from the protocol, checked. The error is one line for people.
pub fn lifetimes_from_wire(of: v1::Lifetimes) -> Result<Lifetimes, String> {
    let confidence = Confidence::new(of.confidence).map_err(|error| error.to_string())?;
    let stacks = each(of.stacks, "stack", |stack| {
        let lifetime = from_wire(stack.lifetime, confidence)?;
        Ok(Stack { pid: stack.pid, frames: stack.frames, lifetime })
    })?;
    Ok(Lifetimes {
        confidence,
        time_unix_ns: of.time_unix_ns,
        total: from_wire(of.total, confidence).within("total")?,
        stacks,
        stacks_total: of.stacks_total,
        notes: of.notes.into_iter().map(Note::from).collect(),
    })
}

fn from_wire(of: Option<v1::Lifetime>, confidence: Confidence) -> Result<Lifetime, String> {
    let of = of.ok_or("it has no lifetime")?;
    let (value, low, high) = interval(of.byte_seconds).within("byte_seconds")?;
    let median = of.median.ok_or("it has no median")?;
    let age = |age: Option<f64>| age.map(|age| number("median", age)).transpose();
    let share = |name: &str, of| -> Result<Share, String> {
        let (value, low, high) = interval(of).within(name)?;
        match high <= 1.0 {
            true => Ok(Share { value, low, high }),
            false => Err(format!("{name}: {high} is no share")),
        }
    };
    Ok(Lifetime {
        samples: of.samples,
        freed: of.freed,
        held: of.held,
        byte_seconds: Estimate {
            value,
            low,
            high,
            confidence,
            samples: of.samples,
            method: Method::Weighted,
        },
        // An older samplerd sends no moments.
        moments: of.moments.as_ref().map(moments).transpose()?.unwrap_or_default(),
        median: Median {
            value: age(median.value_ns)?,
            low: number("median", median.low_ns)?,
            high: age(median.high_ns)?,
        },
        within_1ms: share("within_1ms", of.within_1ms)?,
        within_1s: share("within_1s", of.within_1s)?,
    })
}

fn interval(of: Option<v1::Interval>) -> Result<(f64, f64, f64), String> {
    let v1::Interval { value, low, high } = of.ok_or("it is missing")?;
    let all = (number("value", value)?, number("low", low)?, number("high", high)?);
    match low <= value && value <= high {
        true => Ok(all),
        false => Err(format!("value {value} lies outside its interval {low} to {high}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::estimate::{Moments, Step, Weights};

    fn lifetimes() -> Lifetimes {
        let mut weights = Weights::default();
        weights.add_sample(5.0);
        let mut sum = Moments::default();
        sum.add_sample(5.0, 0.5);
        let steps = vec![
            Step { age_ns: 1e3, freed: weights, censored: Weights::default() },
            Step { age_ns: 1e10, freed: Weights::default(), censored: weights },
        ];
        let lifetime = Lifetime::new(steps, &sum, (1, 1), 1.2, Confidence::DEFAULT);
        let stack = Stack { pid: 3, frames: vec!["main".into(), "malloc".into()], lifetime };
        Lifetimes {
            confidence: Confidence::DEFAULT,
            time_unix_ns: 5,
            total: lifetime,
            stacks: vec![stack],
            stacks_total: 9,
            notes: vec!["n".into()],
        }
    }

    #[test]
    fn lifetimes_arrive_as_sent() {
        assert_eq!(lifetimes_from_wire(lifetimes_to_wire(&lifetimes())), Ok(lifetimes()));
    }

    #[test]
    fn invalid_lifetimes_are_refused() {
        type Damage = fn(&mut v1::Lifetime);
        let cases: [(Damage, &str); 4] = [
            (|of| of.median = None, "stack 0: it has no median"),
            (|of| of.byte_seconds = None, "byte_seconds: it is missing"),
            (|of| of.within_1s.as_mut().unwrap().high = 1.5, "no share"),
            (|of| of.within_1ms.as_mut().unwrap().low = f64::NAN, "low NaN"),
        ];
        for (damage, words) in cases {
            let mut wire = lifetimes_to_wire(&lifetimes());
            damage(wire.stacks[0].lifetime.as_mut().unwrap());
            let error = lifetimes_from_wire(wire).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
