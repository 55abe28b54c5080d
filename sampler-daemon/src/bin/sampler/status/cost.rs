//! The cost of profiling, in words and in JSON.

use crate::connect::{self, Address};
use anyhow::Result;
use sampler_common::cost::{Forecast, Injection, Report, plus_minus};
use sampler_common::encode::json;
use sampler_common::encode::name::shown;
use sampler_common::units::human_cpu_time;
use sampler_daemon::rpc::convert::cost::{from_wire, range};
use sampler_daemon::rpc::convert::forecast;
use sampler_daemon::rpc::v1::{Cost, CostForecast, Interval, Prices, StatusResponse};
use serde_json::{Value, json};

/// Checks a cost from the daemon.
pub(crate) fn report(address: &Address, of: Option<&Cost>) -> Result<Option<Report>> {
    connect::check(address, of.cloned().map(from_wire).transpose())
}

/// A cost in JSON; `null` if there is none, or if it is invalid.
pub(crate) fn object(of: Option<&Cost>) -> Value {
    let report = of.cloned().and_then(|of| from_wire(of).ok());
    report.map_or(Value::Null, |report| json!(json::cost(&report)))
}

/// The cost in one sentence; empty if there is none.
pub(super) fn text(status: &StatusResponse) -> String {
    let report = status.cost.clone().and_then(|of| from_wire(of).ok());
    report.map_or(String::new(), |report| shown(&report.text()).into_owned())
}

/// The forecasts of the cost of uprobes, one line each. An invalid forecast is left out.
pub(super) fn forecasts(status: &StatusResponse) -> Vec<String> {
    let each = status.forecasts.iter().filter_map(|of| forecast::from_wire(of).ok());
    each.map(|(pid, of)| shown(&format!("pid {pid}: {}", of.text())).into_owned()).collect()
}

/// A forecast in JSON; `null` if it is invalid.
pub(super) fn forecast(of: &CostForecast) -> Value {
    let Ok((pid, Forecast { seconds, hits_per_second, injection, .. })) = forecast::from_wire(of)
    else {
        return Value::Null;
    };
    let (inject, why) = match injection {
        Injection::Possible => ("possible", None),
        Injection::Refused(why) => ("refused", Some(why)),
        Injection::Unknown(why) => ("unknown", Some(why)),
    };
    json!({
        "pid": pid,
        "seconds": seconds,
        "hits_per_second": hits_per_second,
        "spent_ns_per_second": of.spent_ns_per_second.as_ref().map(interval),
        "inject": inject,
        "why": why,
    })
}

/// The daemon's own CPU time, and its parts for the start and for measuring prices.
pub(super) fn daemon(status: &StatusResponse) -> String {
    if status.daemon_processor_ns == 0 {
        return String::new();
    }
    let measured = status.prices.as_ref().map_or(0, |prices| prices.measurement_cpu_ns);
    format!(
        "{} of CPU time, {} of it to start and {} to measure prices",
        human_cpu_time(status.daemon_processor_ns as f64),
        human_cpu_time(status.daemon_starting_ns as f64),
        human_cpu_time(measured as f64)
    )
}

/// All prices.
pub(super) fn prices(status: &StatusResponse) -> String {
    let Some(prices) = &status.prices else { return String::new() };
    if !prices.why.is_empty() {
        return format!("not known: {}", shown(&prices.why));
    }
    let mut parts: Vec<String> = Vec::new();
    for (emulated, name) in [(true, "a hit"), (false, "single-stepped")] {
        let of = prices.hits.iter().filter(|hit| hit.emulated == emulated);
        let each = of.filter_map(|hit| Some(format!("{} {}", shown(&hit.program), price(hit.ns?))));
        let each: Vec<String> = each.collect();
        if !each.is_empty() {
            parts.push(format!("{name}: {}", each.join(", ")));
        }
    }
    parts.extend(prices.return_probe_ns.map(|of| format!("a return {}", price(of))));
    let kib = prices.stack_kib_ns.map(|of| format!(" and {} per KiB of stack", price(of)));
    parts.extend(
        prices.sampled_ns.map(|of| format!("a sample {}{}", price(of), kib.unwrap_or_default())),
    );
    parts.join("; ")
}

/// A price without its interval, for a column.
pub(super) fn column(of: Option<&Interval>) -> String {
    of.map(|of| human_cpu_time(of.value)).unwrap_or_default()
}

fn price(of: Interval) -> String {
    format!("{}{}", human_cpu_time(of.value), plus_minus(&range(of)))
}

/// The prices in JSON.
pub(super) fn prices_object(of: &Prices) -> Value {
    let hits = of.hits.iter().map(|hit| {
        json!({
            "program": hit.program,
            "emulated": hit.emulated,
            "ns": hit.ns.as_ref().map(interval),
        })
    });
    json!({
        "hits": hits.collect::<Vec<_>>(),
        "returned_ns": of.return_probe_ns.as_ref().map(interval),
        "sampled_ns": of.sampled_ns.as_ref().map(interval),
        "stack_kib_ns": of.stack_kib_ns.as_ref().map(interval),
        "taken_ns": of.measurement_cpu_ns,
        "why": Some(&of.why).filter(|why| !why.is_empty()),
    })
}

/// A number with its interval in JSON.
pub(super) fn interval(of: &Interval) -> Value {
    json!({ "value": of.value, "low": of.low, "high": of.high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_daemon::rpc::v1::HitPrice;

    #[test]
    fn prices_are_printed_with_their_errors() {
        let of =
            |value: f64, half: f64| Some(Interval { value, low: value - half, high: value + half });
        let hit = |program: &str, emulated, ns| HitPrice { program: program.into(), emulated, ns };
        let prices = Prices {
            hits: vec![
                hit("malloc", true, of(582.0, 1.2)),
                hit("malloc", false, of(19_000.0, 190.0)),
                hit("free", true, of(560.0, 1.2)),
            ],
            return_probe_ns: of(491.0, 12.0),
            sampled_ns: of(2880.0, 220.0),
            stack_kib_ns: of(107.0, 26.0),
            ..Prices::default()
        };
        let status = StatusResponse { prices: Some(prices), ..StatusResponse::default() };
        assert_eq!(
            super::prices(&status),
            "a hit: malloc 582 ns ±0.2%, free 560 ns ±0.2%; single-stepped: malloc 19.0 µs ±1%; \
             a return 491 ns ±2%; a sample 2.88 µs ±8% and 107 ns ±24% per KiB of stack"
        );
        let why = Prices { why: "no memory".into(), ..Prices::default() };
        let status = StatusResponse { prices: Some(why), ..StatusResponse::default() };
        assert_eq!(super::prices(&status), "not known: no memory");
    }
}
