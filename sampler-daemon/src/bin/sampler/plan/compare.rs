//! `sampler plan --compare`: the variance of each strategy, relative to the least possible variance
//! at the same number of samples.

use super::{LABEL, digits, number, percent};
use crate::args::PlanVerb;
use crate::connect::{self, Address};
use crate::{output, page};
use anyhow::{Result, bail};
use sampler_common::encode::text::layout::{left, paragraph, right};
use sampler_common::estimate::{Strategies, Variances, exponential_error, strategies};
use sampler_common::limits::CLASSES;
use sampler_common::profile::Profile;
use sampler_common::sampling::{ClassUse, Strategy, class};
use sampler_common::units::{exact_bytes, human_bytes};
use sampler_daemon::rpc::convert::from_wire;
use sampler_daemon::rpc::v1::{GetProfileRequest, Kind, ListProcessesRequest};
use serde_json::{Value, json};

/// The interval if neither a process nor the command line gives one.
const DEFAULT_INTERVAL: u64 = 512 << 10;

/// Sizes of the built-in mixes, in bytes.
const SIZES: [u64; 6] = [16, 256, 4 << 10, 64 << 10, 512 << 10, 4 << 20];

/// A built-in mix: for each of [`SIZES`], its share of the bytes and the share of its blocks that
/// live.
struct Mix {
    name: &'static str,
    bytes: [f64; SIZES.len()],
    live: [f64; SIZES.len()],
}

/// Total bytes of a mix. Only proportions matter, as long as no size is rare.
const MIX_BYTES: f64 = (16u64 << 30) as f64;

const MIXES: [Mix; 5] = [
    Mix { name: "small", bytes: [0.5, 0.4, 0.1, 0.0, 0.0, 0.0], live: [0.1; 6] },
    Mix { name: "large", bytes: [0.0, 0.0, 0.0, 0.1, 0.3, 0.6], live: [0.1; 6] },
    Mix { name: "mixed", bytes: [1.0 / 6.0; 6], live: [0.1; 6] },
    Mix { name: "small live", bytes: [1.0 / 6.0; 6], live: [0.9, 0.4, 0.1, 0.02, 0.005, 0.001] },
    Mix { name: "large live", bytes: [1.0 / 6.0; 6], live: [0.001, 0.005, 0.02, 0.1, 0.4, 0.9] },
];

/// A subject of the comparison: its name, its current strategy, if any, and its strategies'
/// variances.
struct Subject {
    name: String,
    strategy: Option<Strategy>,
    compared: Strategies,
}

pub(crate) async fn run(given: Option<Address>, verb: &PlanVerb, json: bool) -> Result<()> {
    let (interval, subjects) = match verb.pid {
        Some(pid) => {
            let (interval, subject) = process(given, pid, verb.interval).await?;
            (interval, vec![subject])
        }
        None => {
            let interval = verb.interval.unwrap_or(DEFAULT_INTERVAL);
            (interval, MIXES.iter().filter_map(|mix| mix.subject(interval)).collect())
        }
    };
    let contents = if json {
        format!("{}\n", object(interval, &subjects))
    } else {
        text(interval, &subjects, page::width())
    };
    output::print(contents.as_bytes())
}

impl Mix {
    fn subject(&self, interval: u64) -> Option<Subject> {
        let mut classes = [ClassUse::default(); CLASSES];
        for ((size, share), live) in SIZES.into_iter().zip(self.bytes).zip(self.live) {
            let bytes = share * MIX_BYTES;
            let objects = bytes / size as f64;
            classes[class(size)] = ClassUse { objects, bytes, live_objects: live * objects };
        }
        let compared = strategies(&classes, interval as f64)?;
        Some(Subject { name: self.name.to_owned(), strategy: None, compared })
    }
}

/// Returns a running process as a subject: its exact totals by size class, the estimates of what it
/// holds, and its strategy.
async fn process(
    given: Option<Address>,
    pid: u32,
    interval: Option<u64>,
) -> Result<(u64, Subject)> {
    let address = connect::address(given)?;
    let mut client = connect::client(&address).await?;
    let request = GetProfileRequest {
        kind: Kind::Live.into(),
        pids: vec![pid],
        confidence: 0.95,
        // Only the sums by size class are needed.
        top: 1,
        ..GetProfileRequest::default()
    };
    let answer = client.get_profile(request).await;
    let answer = answer.map_err(|status| connect::failed(&address, &status))?.into_inner();
    let profile = connect::check(&address, from_wire(answer))?;
    let list = client.list_processes(ListProcessesRequest::default()).await;
    let list = list.map_err(|status| connect::failed(&address, &status))?.into_inner();
    let sampling = list.processes.into_iter().find(|of| of.pid == pid).and_then(|of| of.sampling);
    let strategy = sampling.as_ref().and_then(|of| Strategy::from_name(&of.strategy));
    let only = <[Strategy; 1]>::try_from(profile.strategies.as_slice()).ok();
    let strategy = strategy.or(only.map(|[only]| only));
    let interval =
        interval.or(sampling.map(|of| of.interval_bytes)).unwrap_or(profile.interval_bytes);
    let Some(compared) = strategies(&classes(&profile), interval as f64) else {
        bail!("pid {pid} has not allocated anything yet (wait, and ask again)");
    };
    Ok((interval, Subject { name: format!("pid {pid}"), strategy, compared }))
}

/// Returns the totals of each size class: exact if known, else estimated. Live blocks are always
/// estimated.
fn classes(profile: &Profile) -> [ClassUse; CLASSES] {
    let mut classes = [ClassUse::default(); CLASSES];
    for (stratum, of) in &profile.reference.strata {
        let Some(class) = classes.get_mut(usize::from(stratum.class)) else { continue };
        let (bytes, objects) = match of.exact {
            Some((bytes, objects)) => (bytes as f64, objects as f64),
            None => (of.sampled.alloc_space.sum, of.sampled.alloc_objects.sum),
        };
        class.objects += objects;
        class.bytes += bytes;
        class.live_objects += of.sampled.inuse_objects.sum;
    }
    classes
}

/// Returns the variances of allocated and live bytes, as multiples of the least possible ones.
fn ratios(of: &Strategies, variances: &Variances) -> [f64; 2] {
    [
        Strategies::ratio(variances.alloc, of.least_alloc),
        Strategies::ratio(variances.live, of.least_live),
    ]
}

/// The JSON form; its keys are stable. An infinite ratio is `null`.
fn object(interval: u64, subjects: &[Subject]) -> Value {
    let subject = |of: &Subject| {
        let least = [of.compared.least_alloc, of.compared.least_live];
        let strategies = of.compared.strategies.iter().map(|(strategy, variances)| {
            let [alloc, live] = ratios(&of.compared, variances);
            let value = json!({
                "samples": variances.samples,
                "alloc_variance": variances.alloc,
                "live_variance": variances.live,
                "alloc_ratio": alloc,
                "live_ratio": live,
            });
            (strategy.name().to_owned(), value)
        });
        json!({
            "name": of.name,
            "strategy": of.strategy.map(Strategy::name),
            "least_alloc_variance": least[0],
            "least_live_variance": least[1],
            "strategies": strategies.collect::<serde_json::Map<_, _>>(),
        })
    };
    let (error, size) = exponential_error(interval as f64);
    json!({
        "interval_bytes": interval,
        "exponential": { "largest_relative_error": error, "size_bytes": size },
        "compared": subjects.iter().map(subject).collect::<Vec<_>>(),
    })
}

fn text(interval: u64, subjects: &[Subject], width: usize) -> String {
    let mut out = String::new();
    for of in subjects.iter().filter(|of| of.strategy.is_some()) {
        out += &paragraph("answer", &answer(of), LABEL, width);
    }
    let plan = format!("as many samples as geometric takes at {}", exact_bytes(interval));
    out += &paragraph("plan", &plan, LABEL, width);
    let (error, size) = exponential_error(interval as f64);
    let exponential = format!(
        "e^(−Z/R) in place of (1−1/R)^Z puts weights {} off at most (Z = {})",
        percent(error),
        human_bytes(size as f64),
    );
    out += &paragraph("exact", &exponential, LABEL, width);
    out += "\nvariance, times the least there is (1 is best)\n";
    out += &line(["", "", "samples", "allocated", "live"]);
    for of in subjects {
        for (index, (strategy, variances)) in of.compared.strategies.iter().enumerate() {
            let name = if index == 0 { of.name.as_str() } else { "" };
            let mark = if of.strategy == Some(*strategy) { "*" } else { "" };
            let [alloc, live] = ratios(&of.compared, variances).map(times);
            let strategy = format!("{}{mark}", strategy.name());
            out += &line([name, &strategy, &number(variances.samples), &alloc, &live]);
        }
    }
    out
}

/// Says how close the current strategy is to the optimum.
fn answer(of: &Subject) -> String {
    let Some(strategy) = of.strategy else { return String::new() };
    let Some(variances) = of.compared.of(strategy) else {
        return format!("{} is sampled by {}, which has no variance", of.name, strategy.name());
    };
    let [alloc, live] = ratios(&of.compared, variances);
    if variances.live == 0.0 {
        let (name, strategy, alloc) = (&of.name, strategy.name(), times(alloc.sqrt()));
        return format!(
            "{name}, {strategy}: error of allocated bytes {alloc} times the least possible for its sizes; nothing \
             uncertain is held"
        );
    }
    format!(
        "{}, {}: error of live bytes {} times the least possible for its sizes, of allocated bytes {} times",
        of.name,
        strategy.name(),
        times(live.sqrt()),
        times(alloc.sqrt()),
    )
}

/// Formats a ratio: `1.42`, `624`; infinite if the least variance is 0.
fn times(ratio: f64) -> String {
    if ratio.is_finite() { digits(ratio) } else { "∞".to_owned() }
}

fn line([name, strategy, samples, alloc, live]: [&str; 5]) -> String {
    let fields =
        [left(name, 12), left(strategy, 11), right(samples, 9), right(alloc, 10), right(live, 10)];
    format!("{}\n", fields.join(" ").trim_end())
}
