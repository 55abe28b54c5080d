//! `sampler set`: changes how processes are sampled while they run.

use crate::args::SetVerb;
use crate::connect::{self, Address};
use crate::output;
use anyhow::Result;
use sampler_common::encode::name::shown;
use sampler_common::units::exact_bytes;
use sampler_daemon::rpc::v1::{ProcessInterval, SampleSource, SetSamplingRequest};
use serde_json::json;

pub(crate) async fn run(address: &Address, verb: SetVerb, json: bool) -> Result<()> {
    let request = SetSamplingRequest {
        pids: verb.select.pids.clone(),
        interval_bytes: verb.interval,
        strategy: verb.strategy.unwrap_or_default(),
        one_in: verb.one_in.unwrap_or(0),
        samples_per_second: verb.samples_per_second.unwrap_or(0.0),
        selector: verb.select.without_pids(),
    };
    let mut client = connect::client(address).await?;
    let answer = client.set_sampling(request).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    if json {
        let object = json!({ "intervals": crate::status::intervals(&answer.intervals) });
        return output::print(format!("{object}\n").as_bytes());
    }
    let line = |of: &ProcessInterval| format!("pid {}: {}\n", of.pid, sentence(of));
    let mut text: String = answer.intervals.iter().map(line).collect();
    if text.is_empty() {
        text.push_str("no process is profiled\n");
    }
    output::print(text.as_bytes())
}

/// Describes in words how a process is sampled. The default strategy is not named.
pub(crate) fn sentence(of: &ProcessInterval) -> String {
    if of.preloaded {
        let interval = exact_bytes(of.interval_bytes);
        let is_injected = of.sources.contains(&SampleSource::Injected.into());
        let library = if is_injected { "injected" } else { "preloaded" };
        return format!("one sample per {interval}, by the {library} library");
    }
    if of.strategy == "external" {
        return "samples by itself (otel_memory), whatever is asked for".to_owned();
    }
    let interval = exact_bytes(of.interval_bytes);
    let mut text = match of.strategy.as_str() {
        "bernoulli" if of.one_in > 0.0 => format!("one sample in {:.0} allocations", of.one_in),
        "stride" => format!("a sample every {interval}"),
        _ => format!("one sample per {interval}"),
    };
    match of.strategy.as_str() {
        "" | "geometric" => {}
        "bernoulli" if of.one_in == 0.0 => text += ", bernoulli (still learning the mean size)",
        strategy => text += &format!(", {}", shown(strategy)),
    }
    if of.samples_per_second > 0.0 {
        text += &format!(", for {} samples/s", of.samples_per_second);
    }
    if of.samples_itself {
        text += "; also by itself (otel_memory)";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_changes_the_interval_of_the_preloaded_library() {
        let (strategy, interval_bytes) = ("external".to_owned(), 4096);
        let of = ProcessInterval { strategy, interval_bytes, ..ProcessInterval::default() };
        assert!(sentence(&of).ends_with("whatever is asked for"));
        let of = ProcessInterval { preloaded: true, ..of };
        assert_eq!(sentence(&of), "one sample per 4KiB, by the preloaded library");
        let of = ProcessInterval { sources: vec![SampleSource::Injected.into()], ..of };
        assert_eq!(sentence(&of), "one sample per 4KiB, by the injected library");
    }

    #[test]
    fn sampling_is_described_in_a_sentence() {
        let of = |strategy: &str, one_in, samples_per_second| {
            let strategy = strategy.to_owned();
            let interval_bytes = 512 << 10;
            sentence(&ProcessInterval {
                pid: 1,
                interval_bytes,
                strategy,
                one_in,
                samples_per_second,
                samples_itself: false,
                pressure: None,
                preloaded: false,
                sources: vec![],
            })
        };
        assert_eq!(of("geometric", 0.0, 0.0), "one sample per 512KiB");
        assert_eq!(of("stride", 0.0, 0.0), "a sample every 512KiB, stride");
        assert_eq!(of("bernoulli", 1000.0, 0.0), "one sample in 1000 allocations, bernoulli");
        assert!(of("bernoulli", 0.0, 0.0).ends_with("(still learning the mean size)"));
        assert_eq!(of("poisson", 0.0, 50.0), "one sample per 512KiB, poisson, for 50 samples/s");
    }
}
