//! Conversion of costs and prices to the protocol's form, and back.

use crate::pipeline::Prices;
use crate::rpc::v1;
use sampler_common::cost::{Measured, Placed, Program, Range, Report, Tariff};
use sampler_common::estimate::Confidence;

/// The protocol's form of a number with its interval.
pub fn interval(Range { value, low, high }: Range) -> v1::Interval {
    v1::Interval { value, low, high }
}

/// A number with its interval from the protocol, not checked.
pub fn range(v1::Interval { value, low, high }: v1::Interval) -> Range {
    Range { value, low, high }
}

/// The protocol's form of a price, with its interval (95 %).
pub fn measured(of: Measured) -> v1::Interval {
    interval(Tariff::at_any_speed(of).range(Confidence::DEFAULT))
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
    Ok(Report {
        spent_ns: Range::checked("spent_ns", of.spent_ns.map(range))?,
        processor_ns: Range::checked("processor_ns", of.processor_ns.map(range))?,
        daemon_ns: of.daemon_ns,
        unpriced: of.unpriced,
        why: of.why,
    })
}

/// The protocol's form of prices.
pub(in crate::rpc) fn prices(of: &Prices) -> v1::Prices {
    v1::Prices {
        hits: hits(&of.tariff),
        return_probe_ns: of.tariff.return_probe.map(measured),
        sampled_ns: of.tariff.sampled.map(measured),
        stack_kib_ns: of.tariff.stack_kib.map(measured),
        measurement_cpu_ns: of.taken.as_nanos() as u64,
        why: of.why.clone(),
    }
}

fn hits(tariff: &Tariff) -> Vec<v1::HitPrice> {
    let each = [(Program::Malloc, "malloc"), (Program::Free, "free")]
        .into_iter()
        .flat_map(|of| [(of, Placed::Emulated, true), (of, Placed::SingleStepped, false)]);
    let price = |((program, name), placed, emulated): ((Program, &str), Placed, bool)| {
        let ns = Some(measured(tariff.hit(program, placed)?));
        Some(v1::HitPrice { program: name.to_owned(), emulated, ns })
    };
    each.filter_map(price).collect()
}
