//! Probe hits, in a column.

use sampler_common::encode::name::shown;
use sampler_common::units::{grouped, half_width, human_count};
use sampler_daemon::rpc::v1::{Count, Probe};

/// Formats the hits of one probe after another.
#[derive(Default)]
pub(super) struct Hits<'a> {
    /// The probes whose count was shown.
    shown: Vec<&'a Probe>,
}

impl<'a> Hits<'a> {
    /// Returns the hits of `probe`. Functions of one role and placement share a count, which is
    /// shown for the first function.
    pub(super) fn of(&mut self, probe: &'a Probe) -> String {
        let Some(count) = &probe.hits else { return String::new() };
        let counted = |of: &'a Probe| (&of.role, of.emulated, &of.pids);
        if let Some(first) = self.shown.iter().find(|first| counted(first) == counted(probe)) {
            return format!("with {}", shown(symbol(first)));
        }
        self.shown.push(probe);
        text(count)
    }
}

/// Returns the name of a probe.
pub(super) fn symbol(probe: &Probe) -> &str {
    probe.symbols.first().map_or(probe.role.as_str(), String::as_str)
}

/// Formats a count: `8,191` if exact, else `1.30M ±1.8%`. The percentage is the larger distance to
/// an end of the interval.
fn text(count: &Count) -> String {
    let half = (count.high - count.value).max(count.value - count.low);
    let value = match count.value {
        small if small < 1e6 => grouped(small as u64),
        large => human_count(large),
    };
    match 100.0 * half / count.value {
        _ if half <= 0.0 => value,
        percent if percent < 0.05 => format!("{value} ±0.1%"),
        percent if percent < 9.95 => format!("{value} ±{percent:.1}%"),
        _ => format!("{value} {}", half_width(count.value, count.low, count.high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(role: &str, name: &str, value: f64, half: f64) -> Probe {
        Probe {
            role: role.into(),
            symbols: vec![name.into()],
            pids: vec![7],
            hits: Some(Count { value, low: value - half, high: value + half }),
            ..Probe::default()
        }
    }

    #[test]
    fn a_count_is_printed_once() {
        let probes = [
            probe("malloc", "malloc", 8191.0, 0.0),
            probe("malloc", "valloc", 8191.0, 0.0),
            probe("free", "free", 3e6, 54_000.0),
            probe("calloc", "calloc", 0.0, 0.0),
            probe("realloc", "realloc", 1e9, 1.0),
        ];
        let mut hits = Hits::default();
        let texts: Vec<_> = probes.iter().map(|probe| hits.of(probe)).collect();
        assert_eq!(texts, ["8,191", "with malloc", "3.00M ±1.8%", "0", "1.00G ±0.1%"]);
        let none = Probe::default();
        assert_eq!(hits.of(&none), "");
        let emulated = Probe { emulated: true, ..probe("malloc", "my_malloc", 7.0, 0.0) };
        assert_eq!(hits.of(&emulated), "7");
    }
}
