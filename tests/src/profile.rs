//! A profile as `sampler profile --format json` prints it.

use anyhow::{Context, Result, ensure};
use sampler_common::estimate::{Confidence, Estimate, Moments, weighted};
use serde_json::Value;

/// One of the four quantities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// Estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; infinite where there is no interval.
    pub high: f64,
    /// The moments from which estimate and ends were made.
    pub moments: Moments,
}

/// The four quantities of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantities {
    /// Bytes allocated.
    pub alloc_space: Quantity,
    /// Objects allocated.
    pub alloc_objects: Quantity,
    /// Bytes held.
    pub inuse_space: Quantity,
    /// Objects held.
    pub inuse_objects: Quantity,
}

/// A stack, root first.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Function names.
    pub frames: Vec<String>,
    /// The four quantities of the stack.
    pub quantities: Quantities,
}

/// The whole profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// All stacks together, lost ones included.
    pub totals: Quantities,
    /// Exact allocations since attach.
    pub exact_objects: u64,
    /// Exact bytes since attach.
    pub exact_space: u64,
    /// Samples.
    pub samples: u64,
    /// Samples lost, over all outcomes.
    pub lost_samples: u64,
    /// Stacks.
    pub stacks: Vec<Stack>,
    /// The printed form.
    pub json: Value,
}

impl Profile {
    /// Parses the printed form.
    pub fn parse(text: &[u8]) -> Result<Profile> {
        let json: Value = serde_json::from_slice(text)
            .with_context(|| format!("parse the profile {}", String::from_utf8_lossy(text)))?;
        let stacks = json["stacks"].as_array().context("the profile has no stacks")?;
        let lost = json["lost"].as_object().context("the profile has no lost")?;
        Ok(Profile {
            totals: quantities(&json["totals"]).context("totals")?,
            // A process that samples itself has no exact counts.
            exact_objects: count(&json["exact"], "alloc_objects").unwrap_or(0),
            exact_space: count(&json["exact"], "alloc_space").unwrap_or(0),
            samples: count(&json, "samples")?,
            lost_samples: lost.values().filter_map(|value| value["samples"].as_u64()).sum(),
            stacks: stacks.iter().map(stack).collect::<Result<_>>()?,
            json,
        })
    }

    /// Stacks that contain `function` as a frame.
    pub fn stacks_of<'a>(&'a self, function: &'a str) -> impl Iterator<Item = &'a Stack> {
        self.stacks.iter().filter(move |stack| stack.contains(function))
    }

    /// The row of a function: the sum of its stacks' moments.
    pub fn row(&self, function: &str) -> Row {
        let mut row = Row::default();
        for stack in self.stacks_of(function) {
            row.stacks += 1;
            row.alloc_space.add(&stack.quantities.alloc_space.moments);
            row.alloc_objects.add(&stack.quantities.alloc_objects.moments);
            row.inuse_space.add(&stack.quantities.inuse_space.moments);
            row.inuse_objects.add(&stack.quantities.inuse_objects.moments);
        }
        row
    }

    /// The stacks as text, for messages.
    pub fn folded(&self) -> String {
        let lines = self.stacks.iter().map(|stack| {
            let q = &stack.quantities;
            let frames = stack.frames.join(";");
            format!("{frames} alloc {} live {}\n", q.alloc_space.value, q.inuse_space.value)
        });
        lines.collect()
    }
}

impl Stack {
    /// Whether `function` is one of the stack's frames.
    pub fn contains(&self, function: &str) -> bool {
        self.frames.iter().any(|frame| frame == function)
    }
}

/// Summed moments of some stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// How many stacks.
    pub stacks: usize,
    /// Bytes allocated.
    pub alloc_space: Moments,
    /// Objects allocated.
    pub alloc_objects: Moments,
    /// Bytes held.
    pub inuse_space: Moments,
    /// Objects held.
    pub inuse_objects: Moments,
}

/// The interval of summed moments. Bounds are never added.
pub fn interval(moments: &Moments, interval_bytes: f64, confidence: f64) -> Result<Estimate> {
    let confidence = Confidence::new(confidence).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(weighted(moments, interval_bytes, confidence))
}

fn stack(value: &Value) -> Result<Stack> {
    let frames = value["frames"].as_array().context("a stack has no frames")?;
    let frames = frames.iter().map(|frame| {
        Ok(frame.as_str().with_context(|| format!("frame {frame} is no plain string"))?.into())
    });
    let frames = frames.collect::<Result<Vec<String>>>()?;
    let quantities = quantities(value).with_context(|| format!("stack {}", frames.join(";")))?;
    Ok(Stack { frames, quantities })
}

fn quantities(value: &Value) -> Result<Quantities> {
    let of = |key: &str| quantity(&value[key]).with_context(|| key.to_string());
    Ok(Quantities {
        alloc_space: of("alloc_space")?,
        alloc_objects: of("alloc_objects")?,
        inuse_space: of("inuse_space")?,
        inuse_objects: of("inuse_objects")?,
    })
}

fn quantity(value: &Value) -> Result<Quantity> {
    let of = &value["moments"];
    let quantity = Quantity {
        value: number(value, "value")?,
        low: number(value, "low")?,
        high: unbounded(value, "high")?,
        moments: Moments {
            samples: count(of, "samples")?,
            sum: number(of, "sum")?,
            variance: unbounded(of, "variance")?,
            largest: number(of, "largest")?,
            largest_inclusion: number(of, "largest_inclusion")?,
            own: number(of, "own")?,
        },
    };
    let Quantity { value, low, high, .. } = quantity;
    ensure!(low <= value && value <= high, "{value} is not within [{low}, {high}]");
    Ok(quantity)
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value[key].as_f64().with_context(|| format!("no number {key} in {value}"))
}

/// A number that is `null` where it is infinite.
fn unbounded(value: &Value, key: &str) -> Result<f64> {
    if value.get(key) == Some(&Value::Null) { Ok(f64::INFINITY) } else { number(value, key) }
}

fn count(value: &Value, key: &str) -> Result<u64> {
    value[key].as_u64().with_context(|| format!("no count {key} in {value}"))
}
