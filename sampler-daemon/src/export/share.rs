//! The share of hosts that send stacks. Each host draws by itself, anew each day: a hash of its name
//! and the day is as good as a random number, and the same after samplerd's next start.
//!
//! All hosts send their totals, so that `docs/fleet/sampled_hosts.sql` can estimate those that were
//! not drawn.

use sampler_common::encode::push::Draw;
use sha2::{Digest as _, Sha256};

const DAY_NS: u64 = 86_400_000_000_000;

/// The percentage of hosts that are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// All hosts.
    pub const ALL: Share = Share(100.0);

    /// Parses a percentage above 0 %, at most 100 %.
    ///
    /// # Errors
    /// One line that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Share, String> {
        let number = text.trim().strip_suffix('%').map(|number| number.trim().parse::<f64>());
        match number {
            Some(Ok(percent)) if percent > 0.0 && percent <= 100.0 => Ok(Share(percent)),
            _ => Err("is no share of hosts (give 5% for example, at most 100%)".into()),
        }
    }

    /// The percentage, as it was given.
    pub(super) fn percent(self) -> f64 {
        self.0
    }

    /// Draws a host for the day of a moment.
    pub(super) fn draw(self, host: &str, unix_ns: u64) -> Draw {
        let day = (unix_ns / DAY_NS) as i32;
        let mut hash = Sha256::new();
        hash.update(day.to_le_bytes());
        hash.update(host);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        // The top 53 bits are an exact fraction in [0, 1).
        let fraction = (u64::from_le_bytes(first) >> 11) as f64 / (1_u64 << 53) as f64;
        let inclusion = self.0 / 100.0;
        Draw { inclusion, day, is_drawn: fraction < inclusion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_hosts_is_drawn_anew_each_day() {
        let share = Share::parse("5%").unwrap();
        let drawn = |day: u64| -> Vec<u32> {
            let of = |host: &u32| share.draw(&format!("host-{host}"), day * DAY_NS + 7);
            (0..20_000).filter(|host| of(host).is_drawn).collect()
        };
        let [one, other] = [20_421, 20_422].map(drawn);
        // 1,000 ± 4 standard deviations of 31; 50 ± 4 of 7.
        assert!((877..1123).contains(&one.len()) && one != other, "{}", one.len());
        let both = one.iter().filter(|host| other.contains(host)).count();
        assert!((22..78).contains(&both), "{both}");
        assert_eq!(one, drawn(20_421));
    }

    #[test]
    fn a_larger_share_has_the_hosts_of_a_smaller_one() {
        let of = |text, host: u32| Share::parse(text).unwrap().draw(&host.to_string(), 0).is_drawn;
        assert!((0..1000).all(|host| of("100%", host)));
        assert!((0..1000).all(|host| !of("5%", host) || of("10 %", host)));
        let draw = Share::parse("2.5%").unwrap().draw("x", 2 * DAY_NS - 1);
        assert_eq!((draw.inclusion, draw.day), (0.025, 1));
    }

    #[test]
    fn an_invalid_share_is_explained() {
        for text in ["", "5", "0%", "-1%", "101%", "nan%", "x%"] {
            assert!(Share::parse(text).unwrap_err().contains("5%"), "{text}");
        }
    }
}
