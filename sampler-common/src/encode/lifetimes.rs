//! Lifetimes as json, for programs.

use crate::estimate::{Median, Share};
use crate::lifetimes::{Lifetime, Lifetimes};
use serde_json::{Map, Value, json};

/// The object that `docs/formats.md` describes.
pub fn json(of: &Lifetimes) -> Value {
    let stacks = of.stacks.iter().map(|stack| {
        let mut object = Map::new();
        object.insert("pid".into(), stack.pid.into());
        object.insert("frames".into(), stack.frames.clone().into());
        object.extend(lifetime(&stack.lifetime));
        Value::Object(object)
    });
    json!({
        "confidence": of.confidence.level(),
        "time_unix_ns": of.time_unix_ns,
        "total": lifetime(&of.total),
        "stacks_total": of.stacks_total,
        "notes": of.notes,
        "stacks": stacks.collect::<Vec<_>>(),
    })
}

fn lifetime(of: &Lifetime) -> Map<String, Value> {
    let Median { value, low, high } = of.median;
    let share =
        |Share { value, low, high }: Share| json!({ "value": value, "low": low, "high": high });
    let sum = &of.byte_seconds;
    let mut object = Map::new();
    object.insert("samples".into(), of.samples.into());
    object.insert("freed".into(), of.freed.into());
    object.insert("held".into(), of.held.into());
    let byte_seconds = json!({ "value": sum.value, "low": sum.low, "high": sum.high });
    object.insert("byte_seconds".into(), byte_seconds);
    object.insert("median_ns".into(), json!({ "value": value, "low": low, "high": high }));
    object.insert("within_1ms".into(), share(of.within_1ms));
    object.insert("within_1s".into(), share(of.within_1s));
    object
}
