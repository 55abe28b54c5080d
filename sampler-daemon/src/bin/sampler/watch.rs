//! `sampler watch`: a profile every period, redrawn on a terminal, appended elsewhere.

use crate::args::WatchVerb;
use crate::connect::{self, Address};
use crate::encoded::RowLimits;
use crate::{output, page};
use anyhow::{Result, bail};
use sampler_common::encode::Format;
use sampler_common::encode::{Encode, json::Json, text::Text};
use sampler_common::profile::Profile;
use sampler_common::units::utc;
use sampler_daemon::rpc::v1::WatchProfileRequest;

/// Lines that are no functions: totals, headings, a note or two.
const OTHER_LINES: usize = 12;

pub(crate) async fn run(address: &Address, verb: WatchVerb, json: bool) -> Result<()> {
    let limits = match json {
        true => RowLimits::of(Format::Json, verb.filter.top, false),
        false => RowLimits::table(table(&verb).rows, 0),
    };
    let request = WatchProfileRequest {
        profile: Some(limits.request(verb.filter.request(None))),
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
        let profile = limits.answer(address, profile)?;
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

/// The layout: functions only, because stacks would scroll them out of view.
fn table(verb: &WatchVerb) -> Text {
    let fitting = page::height().map(|lines| lines.saturating_sub(OTHER_LINES).max(5));
    let fitting = fitting.filter(|_| page::is_terminal()).unwrap_or(Text::DEFAULT_ROWS);
    let rows = verb.filter.top.map_or(fitting, |top| top as usize);
    Text { width: page::width(), color: page::color(), rows, stacks: 0 }
}

/// Draws over the previous text line by line, because clearing the screen first would flicker.
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
    let time = utc(time_unix_ns);
    let (date, rest) = time.split_once('T').unwrap_or((&time, ""));
    let clock = rest.split('.').next().unwrap_or(rest);
    format!("{date} {clock} UTC\n{text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redrawing_clears_the_last_frame() {
        let frame = drawn("a\nb\n", false);
        assert_eq!(frame, "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
