//! The json form of growth. The keys are stable; `docs/formats.md` is the schema.

use crate::estimate::{Median, Share};
use crate::leaks::{Grown, Held, Leak, Leaks};
use crate::profile::Line;
use serde_json::{Map, Value, json};

/// The growth as one object.
pub fn object(of: &Leaks) -> Value {
    let seconds = of.length_ns() as f64 / 1e9;
    json!({
        "confidence": of.confidence.level(),
        "start_unix_ns": of.start_unix_ns,
        "end_unix_ns": of.end_unix_ns,
        "seconds": seconds,
        "growing": of.growing,
        "unseen": of.unseen,
        "most_missed": of.max_other_growth,
        "total": Value::Object(grown(&of.total, seconds)),
        "stacks_total": of.stacks_total,
        "notes": of.notes,
        "stacks": of.stacks.iter().map(|leak| stack(leak, seconds)).collect::<Vec<_>>(),
    })
}

fn stack(of: &Leak, seconds: f64) -> Value {
    let frame = |of: &Line| json!({ "function": of.function, "file": of.file, "line": of.line });
    let mut object = Map::new();
    object.insert("pid".into(), of.pid.into());
    object.insert("frames".into(), of.frames.iter().map(frame).collect());
    object.insert("growing".into(), of.grown.is_growing().into());
    object.extend(grown(&of.grown, seconds));
    Value::Object(object)
}

fn held(of: &Held) -> Value {
    let Held { unix_ns, value, low, high } = of;
    json!({ "unix_ns": unix_ns, "value": value, "low": low, "high": high })
}

fn grown(of: &Grown, seconds: f64) -> Map<String, Value> {
    let interval =
        |[value, low, high]: [f64; 3]| json!({ "value": value, "low": low, "high": high });
    let growth = [of.growth.value, of.growth.low, of.growth.high];
    let rate = growth.map(|bytes| if seconds > 0.0 { bytes / seconds } else { 0.0 });
    let Median { value, low, high } = of.age;
    let kept = of.kept.map(|Share { value, low, high }| interval([value, low, high]));
    let mut object = Map::new();
    object.insert("growth".into(), interval(growth));
    object.insert("bytes_per_second".into(), interval(rate));
    object.insert("came".into(), of.arrived.into());
    object.insert("went".into(), of.departed.into());
    object.insert("held".into(), interval([of.held.value, of.held.low, of.held.high]));
    object.insert("held_samples".into(), of.held.samples.into());
    object.insert("age_ns".into(), json!({ "value": value, "low": low, "high": high }));
    object.insert("oldest_ns".into(), of.oldest_ns.into());
    object.insert("kept".into(), kept.unwrap_or(Value::Null));
    object.insert("history".into(), of.history.iter().map(held).collect());
    object
}
