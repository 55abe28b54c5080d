//! Limits of one fetch.

use std::time::Duration;

/// Maximum bytes of a debug file.
const MAX_BYTES: u64 = 512 << 20;
/// Maximum time for one file from one server.
const MAX_TIME: Duration = Duration::from_secs(90);

/// Limits of one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of the file.
    pub(super) bytes: u64,
    /// Maximum time from the start of the child to its end.
    pub(super) time: Duration,
}

impl Limits {
    /// The default limits, lowered by the variables of debuginfod's own clients:
    /// `$DEBUGINFOD_MAXSIZE` in bytes and `$DEBUGINFOD_MAXTIME` in seconds. `variable` reads the
    /// environment. As in those clients, a text that is no number above 0 counts as not set.
    pub fn usual(variable: impl Fn(&str) -> Option<String>) -> Limits {
        let set =
            |name: &str| variable(name)?.trim().parse().ok().filter(|number: &u64| *number > 0);
        Limits {
            bytes: set("DEBUGINFOD_MAXSIZE").map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES)),
            time: set("DEBUGINFOD_MAXTIME")
                .map_or(MAX_TIME, |seconds| Duration::from_secs(seconds).min(MAX_TIME)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_can_only_be_lowered() {
        let limits = |size: &str, time: &str| {
            let text = |name: &str| if name.ends_with("SIZE") { size } else { time }.to_owned();
            Limits::usual(|name| Some(text(name)))
        };
        let usual = Limits { bytes: MAX_BYTES, time: MAX_TIME };
        assert_eq!(Limits::usual(|_| None), usual);
        for text in ["", "0", "-1", "x", "99999999999"] {
            assert_eq!(limits(text, text), usual, "{text:?}");
        }
        assert_eq!(limits("1000", "3"), Limits { bytes: 1000, time: Duration::from_secs(3) });
    }
}
