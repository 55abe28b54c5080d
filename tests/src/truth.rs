//! The true allocations that a workload reports.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Sums over a set of allocations that really happened. The fields after `bytes` are expectations
/// under sampling at the workload's interval (`workloads/protocol.h` has the formulas).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrueSums {
    /// Number of allocations.
    pub objects: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Expected number of samples, Σπ.
    pub expected: f64,
    /// Moments of the estimate of bytes.
    pub of_bytes: Spread,
    /// Moments of the estimate of objects.
    pub of_objects: Spread,
    /// Moments of the failed-trials estimate of bytes (no variance of the reported variance).
    pub of_trials: Spread,
}

/// How an unbiased estimate of a known total spreads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Variance of the estimate.
    pub variance: f64,
    /// Fourth cumulant of the estimate.
    pub cumulant: f64,
    /// Variance of the reported variance.
    pub variance_of_variance: f64,
}

/// One function of a workload.
#[derive(Clone, Debug)]
pub struct Function {
    /// The function's name, a frame of every stack that belongs to the function.
    pub name: String,
    /// What the function allocated.
    pub alloc: TrueSums,
    /// What the function allocated and has not freed.
    pub live: TrueSums,
}

/// All functions of a workload.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Functions whose allocations are disjoint.
    pub functions: Vec<Function>,
}

impl Truth {
    /// Reads the line of JSON that a workload prints.
    pub fn parse(line: &str) -> Result<Truth> {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("parse the truth {line:?}"))?;
        if let Some(error) = value["error"].as_str() {
            bail!("the workload failed: {error}");
        }
        let functions = value["functions"].as_array().context("the truth has no functions")?;
        let functions = functions.iter().map(function).collect::<Result<_>>()?;
        Ok(Truth { functions })
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Result<&Function> {
        let found = self.functions.iter().find(|function| function.name == name);
        found.with_context(|| format!("the truth says nothing about {name}"))
    }

    /// Sum over all functions.
    pub fn total(&self) -> Function {
        let empty = Function {
            name: "total".into(),
            alloc: TrueSums::default(),
            live: TrueSums::default(),
        };
        self.functions.iter().fold(empty, |mut total, function| {
            total.alloc.add(&function.alloc);
            total.live.add(&function.live);
            total
        })
    }
}

impl TrueSums {
    fn add(&mut self, other: &TrueSums) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.expected += other.expected;
        self.of_bytes.add(&other.of_bytes);
        self.of_objects.add(&other.of_objects);
        self.of_trials.add(&other.of_trials);
    }
}

impl Spread {
    fn add(&mut self, other: &Spread) {
        self.variance += other.variance;
        self.cumulant += other.cumulant;
        self.variance_of_variance += other.variance_of_variance;
    }
}

fn function(value: &Value) -> Result<Function> {
    let name = value["name"].as_str().context("a function without a name")?.to_string();
    let alloc = sums(&value["alloc"]).with_context(|| format!("alloc of {name}"))?;
    let live = sums(&value["live"]).with_context(|| format!("live of {name}"))?;
    Ok(Function { name, alloc, live })
}

fn sums(value: &Value) -> Result<TrueSums> {
    let number = |key: &str| value[key].as_f64().with_context(|| format!("no number {key}"));
    let count = |key: &str| value[key].as_u64().with_context(|| format!("no count {key}"));
    let spread = |of: &str| -> Result<Spread> {
        Ok(Spread {
            variance: number(&format!("variance_{of}"))?,
            cumulant: number(&format!("cumulant_{of}"))?,
            variance_of_variance: number(&format!("variance_of_variance_{of}"))?,
        })
    };
    Ok(TrueSums {
        objects: count("objects")?,
        bytes: count("bytes")?,
        expected: number("expected")?,
        of_bytes: spread("bytes")?,
        of_objects: spread("objects")?,
        of_trials: spread("trials")?,
    })
}
