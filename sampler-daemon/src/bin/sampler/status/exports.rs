//! The state of pushes to backends.

use sampler_common::encode::name::shown;
use sampler_common::units::{grouped, human_bytes, human_duration};
use sampler_daemon::rpc::v1::Export;
use serde_json::{Value, json};
use std::time::Duration;

/// The state of one destination as text.
pub(super) fn text(of: &Export) -> String {
    let requests = if of.sent == 1 { "request" } else { "requests" };
    let bytes = human_bytes(of.sent_bytes as f64);
    let sent = format!("{} {requests} sent, {bytes}", grouped(of.sent));
    let mut text = format!("{}: {sent}", shown(&of.destination));
    let counts = [
        (of.waiting, "waiting"),
        (of.retried, "attempts repeated"),
        (of.refused, "refused"),
        (of.rejected_profiles, "profiles rejected"),
        (of.dropped, "dropped"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {} {what}", grouped(count));
    }
    if of.left_out {
        text += ", this host was not drawn for today (--export-share)";
    }
    if of.kept_bytes > 0 {
        text += &format!(", {} kept", human_bytes(of.kept_bytes as f64));
    }
    if of.removed_files > 0 {
        let bytes = human_bytes(of.removed_bytes as f64);
        text += &format!(", {} old files removed, {bytes}", grouped(of.removed_files));
    }
    if of.uncovered_ns > 0 {
        let missed = human_duration(Duration::from_nanos(of.uncovered_ns));
        text += &format!(", {missed} in no window");
    }
    if !of.last_error.is_empty() {
        text += &format!("; last error: {}", shown(&of.last_error));
    }
    text
}

/// The state of one destination in JSON.
pub(super) fn object(of: &Export) -> Value {
    json!({
        "destination": of.destination,
        "made": of.made,
        "sent": of.sent,
        "sent_bytes": of.sent_bytes,
        "refused": of.refused,
        "dropped": of.dropped,
        "waiting": of.waiting,
        "waiting_bytes": of.waiting_bytes,
        "retried": of.retried,
        "rejected_profiles": of.rejected_profiles,
        "last_error": Some(&of.last_error).filter(|error| !error.is_empty()),
        "missed_ns": of.uncovered_ns,
        "kept_bytes": of.kept_bytes,
        "removed_files": of.removed_files,
        "removed_bytes": of.removed_bytes,
        "drawn": !of.left_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counted_events_of_an_export_are_printed() {
        let mut export = Export {
            destination: "otlp+http://c:4318".into(),
            sent: 1,
            sent_bytes: 2048,
            ..Export::default()
        };
        assert_eq!(text(&export), "otlp+http://c:4318: 1 request sent, 2.00 KiB");
        let left_out = Export { left_out: true, ..export.clone() };
        assert!(
            text(&left_out)
                .ends_with("2.00 KiB, this host was not drawn for today (--export-share)")
        );
        export.retried = 1500;
        export.dropped = 2;
        export.last_error = "connect: refused\u{1b}".into();
        let text = text(&export);
        assert!(
            text.contains(", 1,500 attempts repeated, 2 dropped; last error: connect"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
    }
}
