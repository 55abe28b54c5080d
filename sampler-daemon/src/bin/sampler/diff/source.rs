//! Where one side of a comparison comes from, as it is written on the command line.

use super::kind_to_wire;
use crate::output;
use anyhow::{Context, Result, anyhow};
use sampler_common::encode::json::read;
use sampler_common::estimate::Confidence;
use sampler_common::profile::{Kind, Profile};
use sampler_daemon::rpc::v1;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A saved json profile.
    File(PathBuf),
    /// A process, since attach: `pid:4121`.
    Process(u32),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        if let Some(pid) = text.strip_prefix("pid:") {
            return match pid.parse() {
                Ok(pid) if pid > 0 => Ok(Source::Process(pid)),
                _ => Err("no process (try pid:4121)".to_owned()),
            };
        }
        if text.is_empty() {
            return Err("neither a file, nor a process, nor a time (try pid:4121 or 5m)".to_owned());
        }
        Ok(Source::File(text.into()))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Process(pid) => write!(f, "pid {pid}"),
        }
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

    /// What to ask samplerd; `None` where the profile was saved.
    pub(super) fn request(
        &self,
        kind: Kind,
        confidence: Confidence,
    ) -> Option<v1::GetProfileRequest> {
        let pids = match self {
            Source::File(_) => return None,
            Source::Process(pid) => vec![*pid],
        };
        let kind = kind_to_wire(kind).into();
        // All stacks: one that is missing would look like one that is gone.
        let confidence = confidence.level();
        Some(v1::GetProfileRequest { kind, pids, confidence, ..v1::GetProfileRequest::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        let file = |path: &str| Ok(Source::File(path.into()));
        for (text, source) in [
            ("before.json", file("before.json")),
            ("/tmp/x", file("/tmp/x")),
            ("pid:4121", Ok(Source::Process(4121))),
        ] {
            assert_eq!(text.parse::<Source>(), source, "{text}");
        }
        for text in ["", "pid:", "pid:0", "pid:-1", "pid:x"] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
        assert_eq!(Source::Process(7).to_string(), "pid 7");
    }
}
