//! `Compare`: compares two profiles of this daemon, and finds which differences exceed chance.

use super::service::{Service, request};
use super::v1;
use sampler_common::comparison::{Compared, ComparedStack, Comparison, Question, compare, parted};
use sampler_common::estimate::Difference;
use sampler_common::profile::Profile;
use tonic::Status;

/// The requested comparison.
pub(super) async fn comparison(
    service: &Service,
    wire: v1::CompareRequest,
) -> Result<v1::Comparison, Status> {
    let missing =
        |name: &str| Status::invalid_argument(format!("{name} is missing (a profile request)"));
    let a = wire.a.ok_or_else(|| missing("a"))?;
    let b = wire.b.ok_or_else(|| missing("b"))?;
    let b = v1::GetProfileRequest { kind: a.kind, confidence: a.confidence, ..b };
    let confidence = request(a.clone())?.confidence;
    let [a, b] = profiles(service, a, b).await?;
    let question = Question {
        a_name: "a",
        a: &a,
        b_name: "b",
        b: &b,
        confidence,
        per_second: wire.per_second,
        // Pids and times of one daemon show whether its two profiles share samples.
        independent: false,
    };
    let comparison =
        compare(&question).map_err(|error| Status::invalid_argument(error.to_string()))?;
    Ok(to_wire(&comparison, wire.top as usize))
}

/// Both profiles, complete. If the requested windows do not overlap, the profiles do not either.
async fn profiles(
    service: &Service,
    a: v1::GetProfileRequest,
    b: v1::GetProfileRequest,
) -> Result<[Profile; 2], Status> {
    let [a, b] = [a, b].map(|of| v1::GetProfileRequest { top: 0, ..of });
    let mut made =
        [service.profile(request(a.clone())?).await?, service.profile(request(b.clone())?).await?];
    // A window without an end reaches until now. No other window begins after that.
    let requested = |of: &v1::GetProfileRequest| match of.until_unix_ns {
        0 => [of.since_unix_ns, u64::MAX],
        until => [of.since_unix_ns, until],
    };
    if let Some((early, until_unix_ns)) =
        parted([requested(&a), requested(&b)], [&made[0], &made[1]])
    {
        let again = if early == 0 { a } else { b };
        let again = v1::GetProfileRequest { until_unix_ns, ..again };
        made[early] = service.profile(request(again)?).await?;
    }
    Ok(made)
}

fn to_wire(of: &Comparison, top: usize) -> v1::Comparison {
    let shown = if top == 0 { of.stacks.len() } else { top };
    let [a, b] = &of.sides;
    v1::Comparison {
        samples: of.relation.name().to_owned(),
        space: Some(quantity(&of.space, None)),
        objects: Some(quantity(&of.objects, None)),
        tested: of.tested as u64,
        stacks: of.stacks.iter().take(shown).map(stack).collect(),
        a_start_unix_ns: a.span_unix_ns[0],
        a_end_unix_ns: a.span_unix_ns[1],
        b_start_unix_ns: b.span_unix_ns[0],
        b_end_unix_ns: b.span_unix_ns[1],
    }
}

fn stack(of: &ComparedStack) -> v1::ComparedStack {
    let compared = |of: &Compared| Some(quantity(&of.difference, of.adjusted));
    v1::ComparedStack {
        frames: of.frames.clone(),
        a_samples: of.samples[0],
        b_samples: of.samples[1],
        space: compared(&of.space),
        objects: compared(&of.objects),
        significant: of.space.is_significant(),
    }
}

fn quantity(of: &Difference, p_adjusted: Option<f64>) -> v1::ComparedQuantity {
    let Difference { a, b, value, low, high, p, .. } = *of;
    v1::ComparedQuantity { a, b, value, low, high, p, p_adjusted }
}
