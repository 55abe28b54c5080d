//! Allocations over time, for the chart.

use crate::http::answer::Problem;
use crate::pipeline::HistoryWindow;
use sampler_common::encode::Measure;
use sampler_common::estimate::{Confidence, Estimate};
use sampler_common::profile::Kind;
use serde_json::{Value, json};

/// Encodes each window: what was allocated in it, and how much of that is still held.
pub(super) fn json(history: &[HistoryWindow], measure: Measure) -> Result<Vec<u8>, Problem> {
    let confidence = Confidence::DEFAULT;
    let slots = history.iter().map(|of| {
        let totals = of.totals(confidence);
        json!({
            "start_unix_ns": of.window.start_unix_ns,
            "end_unix_ns": of.window.end_unix_ns,
            "allocated": number(&measure.of(&totals, Kind::Alloc).estimate),
            "held": number(&measure.of(&totals, Kind::Live).estimate),
        })
    });
    let slots: Vec<Value> = slots.collect();
    let object =
        json!({ "measure": measure.name(), "confidence": confidence.level(), "slots": slots });
    serde_json::to_vec(&object).map_err(Problem::broken)
}

fn number(of: &Estimate) -> Value {
    json!({ "value": of.value, "low": of.low, "high": of.high, "samples": of.samples })
}
