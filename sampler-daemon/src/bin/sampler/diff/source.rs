//! The two sides of a comparison, as they are written on the command line.

use crate::args::unix_ns;
use crate::output;
use anyhow::{Context, Result, anyhow};
use sampler_common::encode::json::read;
use sampler_common::estimate::Confidence;
use sampler_common::profile::{Kind, Profile};
use sampler_common::units::{Time, human_duration, parse_time, utc};
use sampler_daemon::rpc::convert::kind_to_wire;
use sampler_daemon::rpc::v1::{self, ProcessSelector};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A profile saved in JSON.
    File(PathBuf),
    /// A profile of samplerd: of some processes or of all, since the attach or of a window.
    Daemon {
        /// The processes.
        which: ProcessSelector,
        /// The window; `None`: since the attach.
        window: Option<Window>,
    },
}

/// A span of time. A window without an end reaches until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    start: Time,
    end: Option<Time>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        if let Some((kind @ ("pid" | "comm" | "exe" | "cgroup"), rest)) = text.split_once(':') {
            return of_processes(kind, rest);
        }
        match window(text)? {
            Some(window) => Ok(Source::Daemon { which: all(), window: Some(window) }),
            None if text.is_empty() => Err("neither a file, nor processes, nor a time".into()),
            None => Ok(Source::File(text.into())),
        }
    }
}

/// All processes.
fn all() -> ProcessSelector {
    ProcessSelector::default()
}

/// Parses the text after a kind and its colon: `4121`, `4121@5m`, `cc1*@10m..5m`. A control group
/// may contain an `@` of its own.
fn of_processes(kind: &str, text: &str) -> Result<Source, String> {
    let (value, window) = match text.rsplit_once('@') {
        None => (text, None),
        Some((value, time)) => match window(time)? {
            Some(window) => (value, Some(window)),
            None if kind == "pid" => return Err(format!("{time} is no time (try 5m or 10m..5m)")),
            None => (text, None),
        },
    };
    if value.is_empty() {
        return Err(format!("no process (try {kind}:NAME or {kind}:NAME@5m)"));
    }
    let mut which = all();
    match kind {
        "comm" => which.comms.push(value.to_owned()),
        "exe" => which.exes.push(value.to_owned()),
        "cgroup" => which.cgroups.push(value.to_owned()),
        _ => match value.parse() {
            Ok(pid) if pid > 0 => which.pids.push(pid),
            _ => return Err("no process (try pid:4121 or pid:4121@5m)".into()),
        },
    }
    Ok(Source::Daemon { which, window })
}

/// Formats processes, `pid 4121`, `comm cc1*`, in the order of the options.
fn processes(which: &ProcessSelector) -> String {
    let ProcessSelector { pids, comms, exes, cgroups } = which;
    let pids = pids.iter().map(|pid| format!("pid {pid}"));
    let named = [("comm", comms), ("exe", exes), ("cgroup", cgroups)].into_iter();
    let named = named.flat_map(|(kind, all)| all.iter().map(move |of| format!("{kind} {of}")));
    let each: Vec<String> = pids.chain(named).collect();
    if each.is_empty() { "all processes".to_owned() } else { each.join(" ") }
}

/// Parses a window: `5m`, the last five minutes; `10m..5m`, from ten minutes ago to five; `10m..`.
/// Times may be as in RFC 3339. Returns `None` for a text that is no time and may be a file.
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
            Source::Daemon { which, window } => {
                write!(f, "{}", processes(which))?;
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

/// Formats a time: `5 m 00 s ago`, or the date and time.
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
    /// Narrows the source to the processes `to`. Returns whether the source is a profile of
    /// samplerd; only such a source is narrowed.
    ///
    /// # Errors
    /// If the source names processes itself.
    pub(super) fn narrow(&mut self, to: &ProcessSelector) -> Result<bool> {
        let Source::Daemon { which, .. } = self else { return Ok(false) };
        if *which != all() {
            let (own, other) = (processes(which), processes(to));
            return Err(anyhow!(
                "{own}: is not all processes, of which {other} could be chosen (give one of them)"
            ));
        }
        *which = to.clone();
        Ok(true)
    }

    /// Reads the saved profile; `None` if the source is not a file.
    pub(super) fn saved(&self) -> Option<Result<Profile>> {
        let Source::File(path) = self else { return None };
        let contents = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                anyhow!(
                    "{} (give a saved json profile, pid:4121, comm:NAME or 5m)",
                    output::reason(&error)
                )
            }
            _ => anyhow!("{}", output::reason(&error)),
        });
        let profile = contents.and_then(|contents| Ok(read(&contents)?));
        Some(profile.with_context(|| format!("read {}", path.display())))
    }

    /// Returns the request to samplerd; `None` for a saved profile.
    pub(super) fn request(
        &self,
        kind: Kind,
        confidence: Confidence,
        now_unix_ns: u64,
    ) -> Option<v1::GetProfileRequest> {
        let Source::Daemon { which, window } = self else { return None };
        // 0 means since the attach, or until now.
        let time = |of: Option<Time>| of.map_or(0, |of| of.unix_ns(now_unix_ns).max(1));
        Some(v1::GetProfileRequest {
            kind: kind_to_wire(kind).into(),
            selector: Some(which.clone()),
            confidence: confidence.level(),
            since_unix_ns: time(window.map(|of| of.start)),
            until_unix_ns: time(window.and_then(|of| of.end)),
            // All stacks are requested: a stack that is left out would look like a stack that is
            // gone.
            ..v1::GetProfileRequest::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sources_of_profiles_are_parsed() {
        let file = |path: &str| Ok(Source::File(path.into()));
        let ago = |seconds| Time::Ago(Duration::from_secs(seconds));
        let of = |pids: &[u32]| ProcessSelector { pids: pids.to_vec(), ..all() };
        let since = |which, seconds| {
            Ok(Source::Daemon { which, window: Some(Window { start: ago(seconds), end: None }) })
        };
        let comm = |name: &str| ProcessSelector { comms: vec![name.to_owned()], ..all() };
        let group = ProcessSelector { cgroups: vec!["user@1000.service".to_owned()], ..all() };
        for (text, source) in [
            ("before.json", file("before.json")),
            ("/tmp/x", file("/tmp/x")),
            ("pid:4121", Ok(Source::Daemon { which: of(&[4121]), window: None })),
            ("5m", since(all(), 300)),
            ("pid:7@5m", since(of(&[7]), 300)),
            ("10m..", since(all(), 600)),
            ("comm:cc1*", Ok(Source::Daemon { which: comm("cc1*"), window: None })),
            ("comm:cc1*@5m", since(comm("cc1*"), 300)),
            ("cgroup:user@1000.service", Ok(Source::Daemon { which: group.clone(), window: None })),
            ("cgroup:user@1000.service@5m", since(group, 300)),
            ("./comm:x", file("./comm:x")),
            ("./5m", file("./5m")),
            ("../x", file("../x")),
        ] {
            assert_eq!(text.parse::<Source>(), source, "{text}");
        }
        let both = "10m..5m".parse::<Source>().unwrap();
        let window = Window { start: ago(600), end: Some(ago(300)) };
        assert_eq!(both, Source::Daemon { which: all(), window: Some(window) });
        assert_eq!(both.to_string(), "all processes, 10 m 00 s ago to 5 m 00 s ago");
        let minute = 60_000_000_000;
        let request = both.request(Kind::Alloc, Confidence::DEFAULT, 100 * minute).unwrap();
        assert_eq!((request.since_unix_ns, request.until_unix_ns), (90 * minute, 95 * minute));
        let dates = "2026-11-21T13:00:00Z..2026-11-21T13:05:00Z".parse::<Source>().unwrap();
        let request = dates.request(Kind::Live, Confidence::DEFAULT, 0).unwrap();
        assert_eq!(request.until_unix_ns - request.since_unix_ns, 5 * minute);
        for text in [
            "", "pid:", "pid:0", "pid:-1", "pid:x", "pid:7@", "pid:7@x", "5m..10m", "5m..x",
            "comm:", "exe:@5m",
        ] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
        assert_eq!("comm:x@5m".parse::<Source>().unwrap().to_string(), "comm x, the last 5 m 00 s");
        assert_eq!("pid:7@5m".parse::<Source>().unwrap().to_string(), "pid 7, the last 5 m 00 s");
    }
}
