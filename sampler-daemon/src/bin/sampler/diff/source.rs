//! Where one side of a comparison comes from, as it is written on the command line.

use crate::args::unix_ns;
use crate::output;
use anyhow::{Context, Result, anyhow};
use sampler_common::encode::json::read;
use sampler_common::estimate::Confidence;
use sampler_common::profile::{Kind, Profile};
use sampler_common::units::{Time, human_duration, parse_time, utc};
use sampler_daemon::rpc::convert::kind_to_wire;
use sampler_daemon::rpc::v1;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A saved json profile.
    File(PathBuf),
    /// What samplerd knows: of a process or all, since attach or of a window.
    Daemon {
        /// The process; 0 stands for all.
        pid: u32,
        /// From when to when, if not since attach.
        window: Option<Window>,
    },
}

/// A span of time; without an end it reaches until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    start: Time,
    end: Option<Time>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        let Some(rest) = text.strip_prefix("pid:") else {
            return match window(text)? {
                Some(window) => Ok(Source::Daemon { pid: 0, window: Some(window) }),
                None if text.is_empty() => Err("neither a file, nor a process, nor a time".into()),
                None => Ok(Source::File(text.into())),
            };
        };
        let (pid, time) = match rest.split_once('@') {
            Some((pid, time)) => (pid, Some(time)),
            None => (rest, None),
        };
        let pid = pid.parse().ok().filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(|| "no process (try pid:4121 or pid:4121@5m)".to_owned())?;
        let window = time.map(|time| {
            let found = window(time)?;
            found.ok_or_else(|| format!("{time} is no time (try 5m or 10m..5m)"))
        });
        Ok(Source::Daemon { pid, window: window.transpose()? })
    }
}

/// `5m`, the last five minutes; `10m..5m`, from ten minutes ago to five; `10m..`; times as in RFC 3339. `None` for what is no
/// time at all, and may be a file.
fn window(text: &str) -> Result<Option<Window>, String> {
    let Some((start, end)) = text.split_once("..").filter(|(start, _)| !start.is_empty()) else {
        let start = parse_time(text).ok();
        return Ok(start.map(|start| Window { start, end: None }));
    };
    let Ok(start) = parse_time(start) else { return Ok(None) };
    let end = match end {
        "" => None,
        end => Some(parse_time(end).map_err(|error| error.to_string())?),
    };
    let now = unix_ns();
    if end.is_some_and(|end| end.unix_ns(now) <= start.unix_ns(now)) {
        return Err(format!("{text} ends before it begins (swap the two)"));
    }
    Ok(Some(Window { start, end }))
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Daemon { pid, window } => {
                match pid {
                    0 => write!(f, "all processes")?,
                    pid => write!(f, "pid {pid}")?,
                }
                match window {
                    None => Ok(()),
                    Some(Window { start, end: None }) => write!(f, ", {}", since(*start)),
                    Some(Window { start, end: Some(end) }) => {
                        write!(f, ", {} to {}", shown(*start), shown(*end))
                    }
                }
            }
        }
    }
}

/// `5 m 00 s ago`, or the time.
fn shown(time: Time) -> String {
    match time {
        Time::Ago(ago) => format!("{} ago", human_duration(ago)),
        Time::At(unix_ns) => utc(unix_ns),
    }
}

fn since(time: Time) -> String {
    match time {
        Time::Ago(ago) => format!("the last {}", human_duration(ago)),
        Time::At(unix_ns) => format!("since {}", utc(unix_ns)),
    }
}

impl Source {
    /// The profile that was saved in the file, if it is one.
    pub(super) fn saved(&self) -> Option<Result<Profile>> {
        let Source::File(path) = self else { return None };
        let contents = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                anyhow!("{} (give a saved json profile, pid:4121 or 5m)", output::reason(&error))
            }
            _ => anyhow!("{}", output::reason(&error)),
        });
        let profile = contents.and_then(|contents| Ok(read(&contents)?));
        Some(profile.with_context(|| format!("read {}", path.display())))
    }

    /// What to ask samplerd, where it is `now`; `None` where the profile was saved.
    pub(super) fn request(
        &self,
        kind: Kind,
        confidence: Confidence,
        now_unix_ns: u64,
    ) -> Option<v1::GetProfileRequest> {
        let Source::Daemon { pid, window } = self else { return None };
        // 0 means from attach, until now.
        let time = |of: Option<Time>| of.map_or(0, |of| of.unix_ns(now_unix_ns).max(1));
        Some(v1::GetProfileRequest {
            kind: kind_to_wire(kind).into(),
            pids: if *pid == 0 { vec![] } else { vec![*pid] },
            confidence: confidence.level(),
            since_unix_ns: time(window.map(|of| of.start)),
            until_unix_ns: time(window.and_then(|of| of.end)),
            // All stacks: one that is missing would look like one that is gone.
            ..v1::GetProfileRequest::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sources() {
        let file = |path: &str| Ok(Source::File(path.into()));
        let ago = |seconds| Time::Ago(Duration::from_secs(seconds));
        let since = |pid, seconds| {
            Ok(Source::Daemon { pid, window: Some(Window { start: ago(seconds), end: None }) })
        };
        for (text, source) in [
            ("before.json", file("before.json")),
            ("/tmp/x", file("/tmp/x")),
            ("pid:4121", Ok(Source::Daemon { pid: 4121, window: None })),
            ("5m", since(0, 300)),
            ("pid:7@5m", since(7, 300)),
            ("10m..", since(0, 600)),
            ("./5m", file("./5m")),
            ("../x", file("../x")),
        ] {
            assert_eq!(text.parse::<Source>(), source, "{text}");
        }
        let both = "10m..5m".parse::<Source>().unwrap();
        let window = Window { start: ago(600), end: Some(ago(300)) };
        assert_eq!(both, Source::Daemon { pid: 0, window: Some(window) });
        assert_eq!(both.to_string(), "all processes, 10 m 00 s ago to 5 m 00 s ago");
        let minute = 60_000_000_000;
        let request = both.request(Kind::Alloc, Confidence::DEFAULT, 100 * minute).unwrap();
        assert_eq!((request.since_unix_ns, request.until_unix_ns), (90 * minute, 95 * minute));
        let dates = "2026-11-21T13:00:00Z..2026-11-21T13:05:00Z".parse::<Source>().unwrap();
        let request = dates.request(Kind::Live, Confidence::DEFAULT, 0).unwrap();
        assert_eq!(request.until_unix_ns - request.since_unix_ns, 5 * minute);
        for text in
            ["", "pid:", "pid:0", "pid:-1", "pid:x", "pid:7@", "pid:7@x", "5m..10m", "5m..x"]
        {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
        assert_eq!("pid:7@5m".parse::<Source>().unwrap().to_string(), "pid 7, the last 5 m 00 s");
    }
}
