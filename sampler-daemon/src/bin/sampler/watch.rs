//! `sampler watch`: a profile every period, redrawn on a terminal, appended elsewhere.

use crate::args::WatchVerb;
use crate::connect::{self, Address};
use crate::{output, page};
use anyhow::{Result, bail};
use sampler_common::encode::{Encode, json::Json, text::Text};
use sampler_common::profile::Profile;
use sampler_daemon::rpc::convert::from_wire;
use sampler_daemon::rpc::v1::WatchProfileRequest;

/// Lines that are not functions: totals, headings, a note or two.
const OTHER_LINES: usize = 12;

pub(crate) async fn run(address: &Address, verb: WatchVerb, json: bool) -> Result<()> {
    let top = if json { verb.filter.top } else { None };
    let request = WatchProfileRequest {
        profile: Some(verb.filter.request(top)),
        period_ms: u32::try_from(verb.period.as_millis()).unwrap_or(u32::MAX),
    };
    let mut client = connect::client(address).await?;
    let stream = client.watch_profile(request).await;
    let mut stream = stream.map_err(|status| connect::failed(address, &status))?.into_inner();
    let redraw = !json && page::is_terminal();
    let mut seen = 0;
    while verb.count.is_none_or(|count| seen < count) {
        let next = stream.message().await.map_err(|status| connect::failed(address, &status))?;
        let Some(profile) = next else { bail!("samplerd at {address} stopped") };
        let profile = connect::check(address, from_wire(profile))?;
        let contents = if json {
            encoded(&Json, &profile)?
        } else {
            let text = String::from_utf8(encoded(&table(&verb), &profile)?)?;
            if redraw { drawn(&text, seen == 0) } else { appended(&text, profile.time_unix_ns) }
                .into_bytes()
        };
        output::print(&contents)?;
        seen += 1;
    }
    Ok(())
}

fn encoded(format: &dyn Encode, profile: &Profile) -> Result<Vec<u8>> {
    let mut contents = Vec::new();
    format.encode(profile, &mut contents)?;
    Ok(contents)
}

/// Functions only: stacks would scroll them away.
fn table(verb: &WatchVerb) -> Text {
    let fitting = page::height().map(|lines| lines.saturating_sub(OTHER_LINES).max(5));
    let fitting = fitting.filter(|_| page::is_terminal()).unwrap_or(Text::DEFAULT_ROWS);
    let rows = verb.filter.top.map_or(fitting, |top| top as usize);
    Text { width: page::width(), color: page::color(), rows, stacks: 0 }
}

/// Over what was drawn before, line by line: clearing first would flicker.
fn drawn(text: &str, first: bool) -> String {
    let lines = page::height().map_or(usize::MAX, |lines| lines.saturating_sub(1));
    let mut out = String::from(if first { "\x1b[H\x1b[2J" } else { "\x1b[H" });
    for line in text.lines().take(lines) {
        out.push_str(line);
        out.push_str("\x1b[K\n");
    }
    out.push_str("\x1b[J");
    out
}

/// A block that begins with its time and ends with an empty line.
fn appended(text: &str, time_unix_ns: u64) -> String {
    format!("{}\n{text}\n", utc(time_unix_ns / 1_000_000_000))
}

/// `2026-11-20 13:07:37 UTC`. Civil date from days: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`, for days after the epoch.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second % 3600 / 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(1_709_164_800), "2024-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_180_057), "2026-11-20 13:07:37 UTC");
    }

    #[test]
    fn redrawing_leaves_nothing_of_the_last_frame() {
        let frame = drawn("a\nb\n", false);
        assert_eq!(frame, "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
