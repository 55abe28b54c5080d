//! Conversion of costs and prices to the protocol's form, and back.

use crate::pipeline::PricesReport;
use crate::rpc::v1;
use sampler_common::cost::{Measured, Placed, Program, Range, Report, Spent, Tariff};
use sampler_common::estimate::Confidence;

/// The protocol's form of a number with its interval.
pub fn interval(Range { value, low, high }: Range) -> v1::Interval {
    v1::Interval { value, low, high }
}

/// The protocol's form of a price, with its interval (95 %).
pub fn measured(of: Measured) -> v1::Interval {
    let spent = Spent { ns: of.ns, variance: of.variance, unpriced: 0.0 };
    interval(spent.range(Confidence::DEFAULT))
}

/// The protocol's form of a cost.
pub fn to_wire(of: &Report) -> v1::Cost {
    v1::Cost {
        spent_ns: of.spent_ns.map(interval),
        processor_ns: of.processor_ns.map(interval),
        share: of.share().map(interval),
        daemon_ns: of.daemon_ns,
        unpriced: of.unpriced,
        why: of.why.clone(),
    }
}

/// A cost from the protocol, checked.
///
/// # Errors
/// One line, if a number makes no sense.
pub fn from_wire(of: v1::Cost) -> Result<Report, String> {
    let range = |name: &str, of: Option<v1::Interval>| {
        of.map(|of| Range::checked(of.value, of.low, of.high))
            .transpose()
            .map_err(|error| format!("{name}: {error}"))
    };
    Ok(Report {
        spent_ns: range("spent_ns", of.spent_ns)?,
        processor_ns: range("processor_ns", of.processor_ns)?,
        daemon_ns: of.daemon_ns,
        unpriced: of.unpriced,
        why: of.why,
    })
}

/// The protocol's form of prices.
pub(in crate::rpc) fn prices(of: &PricesReport) -> v1::Prices {
    let Tariff { return_probe, sampled, sampled_free, .. } = of.tariff;
    let mean = |price: Measured| measured(of.tariff.at_any_speed(price));
    v1::Prices {
        hits: hits(&of.tariff),
        return_probe_ns: return_probe.map(mean),
        sampled_ns: sampled.map(|line| mean(line.of(1.0, 0.0))),
        stack_kib_ns: sampled.map(|line| mean(line.of(0.0, 1.0))),
        sampled_free_ns: sampled_free.map(mean),
        measurement_cpu_ns: of.taken.as_nanos() as u64,
        why: of.why.clone(),
        cold_cache_ns: of.tariff.cold_cache.map(mean),
    }
}

fn hits(tariff: &Tariff) -> Vec<v1::HitPrice> {
    let each = Program::ALL.into_iter().flat_map(|program| {
        [(Placed::Emulated, true), (Placed::SingleStepped, false)].map(|(placed, emulated)| {
            let ns = Some(measured(tariff.hit(program, placed)?));
            Some(v1::HitPrice { program: program.name().to_owned(), emulated, ns })
        })
    });
    each.flatten().collect()
}
