//! The json form of a comparison. The keys are stable; `docs/formats.md` is the schema. Infinite
//! ends are `null`.

use crate::comparison::{About, Compared, ComparedStack, Comparison, FALSE_DISCOVERY_RATE};
use crate::estimate::Difference;
use serde_json::{Value, json};

/// The comparison as one object.
pub fn object(of: &Comparison) -> Value {
    json!({
        "kind": of.kind.name(),
        "confidence": of.confidence.level(),
        "per_second": of.per_second,
        "samples": of.relation.name(),
        "a": side(&of.sides[0]),
        "b": side(&of.sides[1]),
        "false_discovery_rate": FALSE_DISCOVERY_RATE,
        "tested": of.tested,
        "significant": of.significant(),
        "totals": { "space": difference(&of.space), "objects": difference(&of.objects) },
        "stacks": of.stacks.iter().map(stack).collect::<Vec<_>>(),
    })
}

fn side(of: &About) -> Value {
    json!({
        "name": of.name,
        "start_unix_ns": of.span_unix_ns[0],
        "end_unix_ns": of.span_unix_ns[1],
        "duration_ns": of.duration_ns(),
        "interval_bytes": of.interval_bytes,
        "samples": of.samples,
    })
}

fn stack(of: &ComparedStack) -> Value {
    json!({
        "frames": of.frames,
        "samples": of.samples,
        "significant": of.space.is_significant(),
        "space": compared(&of.space),
        "objects": compared(&of.objects),
    })
}

fn compared(of: &Compared) -> Value {
    let mut value = difference(&of.difference);
    value["p_adjusted"] = json!(of.adjusted);
    value
}

fn difference(of: &Difference) -> Value {
    json!({ "a": of.a, "b": of.b, "value": of.value, "low": of.low, "high": of.high, "p": of.p })
}
