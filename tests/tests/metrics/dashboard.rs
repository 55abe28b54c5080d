//! `examples/grafana/dashboard.json` asks only for metrics that `/metrics` serves.

use super::Served;
use anyhow::{Context as _, Result, ensure};
use sampler_tests::exposition::Exposition;
use sampler_tests::{Workload, wait};
use serde_json::Value;
use std::collections::BTreeSet;

const DASHBOARD: &str = include_str!("../../../examples/grafana/dashboard.json");
/// A metric that exists once the costs of probes have been measured.
const PRICED: &str = "sampler_probe_cpu_seconds_total";
/// Labels that a scraper adds, and the bounds of histograms.
const ADDED: [&str; 3] = ["instance", "job", "le"];

#[test]
fn the_dashboard_uses_existing_metrics_only() -> Result<()> {
    let mut workload = Workload::edge(&["ticks"])?;
    // The metric of the sample limit exists only with a limit.
    let arguments = ["--interval", "1", "--max-samples-per-second", "25000"];
    let served = Served::start(&[workload.pid()], &arguments)?;
    workload.go()?;
    workload.truth()?;
    let page = wait::until("prices of probes", || {
        let page = served.metrics()?;
        let is_priced = page.of(PRICED).next().is_some();
        Ok(is_priced.then_some(page))
    })?;
    let dashboard: Value = serde_json::from_str(DASHBOARD).context("parse the dashboard")?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten();
    let mut known = BTreeSet::new();
    for target in targets {
        let expression = target["expr"].as_str().context("a target without an expression")?;
        let legend = target["legendFormat"].as_str().unwrap_or_default();
        known.extend(check(&page, expression, legend).context(expression.to_owned())?);
    }
    ensure!(known.len() > 20, "only {known:?}");
    served.daemon.stop()
}

/// The metrics of an expression. All of them must be served, with every label that the expression
/// or its legend names.
fn check(page: &Exposition, expression: &str, legend: &str) -> Result<Vec<String>> {
    let is_metric = |word: &&str| word.starts_with("sampler_") || word.starts_with("process_");
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: Vec<&str> = words.filter(is_metric).collect();
    ensure!(!metrics.is_empty(), "no metric");
    let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    let labels: BTreeSet<&str> = grouped
        .flat_map(|list| list.split(", "))
        .chain(shown)
        .filter(|l| !ADDED.contains(l))
        .collect();
    for metric in &metrics {
        let mut series = page.of(metric).peekable();
        ensure!(series.peek().is_some(), "no {metric} is served");
        for (has, _) in series {
            let missing = labels.iter().find(|label| !has.contains_key(**label));
            ensure!(missing.is_none(), "{metric} has no label {missing:?}");
        }
    }
    Ok(metrics.into_iter().map(str::to_owned).collect())
}
