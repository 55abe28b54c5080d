//! Pushes as requests to `POST /ingest` of Pyroscope, and of Grafana Alloy's
//! `pyroscope.receive_http`.
//!
//! Reference for the characters that names and labels may have: `pkg/og/ingestion`,
//! `pkg/og/storage/segment/key.go` and `pkg/og/flameql` of Pyroscope.

use super::outbox::{Body, compressed};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_common::encode::pprof::profiles;
use sampler_common::encode::push::{Attributes, Push};

const SECOND_NS: u64 = 1_000_000_000;

/// Returns the bodies that carry a push. An empty push has no bodies.
pub(super) fn bodies(push: &Push) -> Vec<Body> {
    let start = push.start_unix_ns / SECOND_NS;
    let end = (push.start_unix_ns + push.duration_ns) / SECOND_NS;
    let body = |(service, bytes): (u32, Vec<u8>)| {
        let name = name(&push.services[service as usize]);
        let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        let target = format!("/ingest?name={name}&from={start}&until={end}&format=pprof");
        Body { id: fastrand::u128(..), target, bytes: compressed(&bytes), profiles: 1 }
    };
    profiles(push).into_iter().map(body).collect()
}

/// Formats `SERVICE{KEY=VALUE,…}`. Pyroscope allows no quotes around values and no dots in keys.
fn name(service: &Attributes) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    let is_key = |c: char| c.is_ascii_alphanumeric();
    let is_value = |c: char| !c.is_control() && !"{},=\"".contains(c);
    let name = service.iter().find(|(key, _)| key == "service.name");
    let name = replaced(name.map_or("unknown", |(_, name)| name), is_name);
    let labels = service
        .iter()
        .filter(|(key, _)| key != "service.name")
        .map(|(key, value)| format!("{}={}", replaced(key, is_key), replaced(value, is_value)));
    format!("{name}{{{}}}", labels.collect::<Vec<_>>().join(","))
}

fn replaced(text: &str, is_allowed: impl Fn(char) -> bool) -> String {
    text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_in_names_have_no_reserved_characters() {
        let of = |pairs: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
            name(&pairs.iter().map(owned).collect())
        };
        let all = [("service.name", "a b{"), ("host.name", "h"), ("x-y", "1,2}\"=\n")];
        assert_eq!(of(&all), "a_b_{host_name=h,x_y=1_2____}");
        assert_eq!(of(&[]), "unknown{}");
    }
}
