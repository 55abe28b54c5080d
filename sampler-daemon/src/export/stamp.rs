//! Names of windows, of their folders and files, by host and time.

use sampler_common::units::utc_micros;

/// Longest part of a file name that comes from the host's name.
const MAX_HOST_BYTES: usize = 64;
const SUFFIX: &str = ".parquet";
/// The shape of a window's start in a file name. `0` stands for any digit.
const SHAPE: &[u8] = b"00000000T000000.000000Z";

/// The start of a window in UTC, to the microsecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp(String);

impl Stamp {
    pub(super) fn new(unix_ns: u64) -> Stamp {
        Stamp(utc_micros(unix_ns))
    }

    /// `dt=2026-11-29`
    pub(super) fn day(&self) -> String {
        format!("dt={}", &self.0[..10])
    }

    /// `hour=13`
    pub(super) fn hour(&self) -> String {
        format!("hour={}", &self.0[11..13])
    }

    /// `HOST-20261129T131502.123456Z`
    pub(super) fn window(&self, host: &Host) -> String {
        let digits: String = self.0.chars().filter(|c| !"-:".contains(*c)).collect();
        format!("{}-{digits}", host.0)
    }

    /// `HOST-20261129T131502.123456Z.parquet`
    pub(super) fn file(&self, host: &Host) -> String {
        self.window(host) + SUFFIX
    }
}

/// The host's part of a file name.
#[derive(Clone, Debug)]
pub(super) struct Host(String);

impl Host {
    pub(super) fn of_this_machine() -> Host {
        Host::new(&rustix::system::uname().nodename().to_string_lossy())
    }

    pub(super) fn new(name: &str) -> Host {
        let is_kept = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let kept = |c: char| if is_kept(c) || c == '.' { c } else { '_' };
        let name: String = name.chars().take(MAX_HOST_BYTES).map(kept).collect();
        // Readers of data sets skip a file whose name begins with `.` or `_`: it counts as hidden.
        // Commands take a name that begins with `-` for an option.
        let name = name.trim_start_matches(['.', '_', '-']);
        Host(if name.is_empty() { "host" } else { name }.to_owned())
    }

    /// Whether a file has a name that this host gives to its files.
    pub(super) fn owns(&self, file: &str) -> bool {
        let rest = file.strip_prefix(&self.0).and_then(|rest| rest.strip_prefix('-'));
        let stamp = rest.and_then(|rest| rest.strip_suffix(SUFFIX)).unwrap_or_default().as_bytes();
        let fits = |(of, shape): (&u8, &u8)| match shape {
            b'0' => of.is_ascii_digit(),
            _ => of == shape,
        };
        stamp.len() == SHAPE.len() && stamp.iter().zip(SHAPE).all(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_its_place_by_its_start() {
        let stamp = Stamp::new(1_764_421_234_567_891_234);
        assert_eq!((stamp.day().as_str(), stamp.hour().as_str()), ("dt=2025-11-29", "hour=13"));
        let file = stamp.file(&Host::new("a-b.c"));
        assert_eq!(file, "a-b.c-20251129T130034.567891Z.parquet");
        assert!(Host::new("a-b.c").owns(&file));
    }

    #[test]
    fn a_host_owns_only_its_own_files() {
        let file = Stamp::new(1).file(&Host::new("a-b"));
        for other in ["a", "b", "a-", "a-b-c", ""] {
            assert!(!Host::new(other).owns(&file), "{other}");
        }
        let host = Host::new("a-b");
        for name in ["a-b-.parquet", "a-b-20251129T130034.567891Z", ".a-b", &file[1..]] {
            assert!(!host.owns(name), "{name}");
        }
    }

    #[test]
    fn a_host_name_is_no_path() {
        for (name, expected) in
            [("../x", "x"), ("a/b c\n", "a_b_c_"), ("", "host"), ("..", "host"), ("_x", "x")]
        {
            let file = Stamp::new(1).file(&Host::new(name));
            assert_eq!(file, format!("{expected}-19700101T000000.000000Z.parquet"));
        }
    }
}
