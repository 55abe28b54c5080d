//! The list of `sampler ps` as text.

use super::entry::Entry;
use crate::args::By;
use sampler_common::cost::percent;
use sampler_common::encode::name::shown;
use sampler_common::encode::text::layout::{end, middle, paragraph, right};
use sampler_common::estimate::plus_minus;
use sampler_common::units::{grouped, human_bytes, human_count, short_bytes};

/// Widths of the columns of numbers before the name. Only the list of processes has the last two.
const WIDTHS: [usize; 8] = [7, 9, 8, 5, 8, 7, 8, 5];
/// Headings of the columns after the first.
const HEADS: [&str; 7] = ["ALLOCATED", "HELD", "±", "RSS", "SAMPLES", "INTERVAL", "COST"];
/// Minimum width of a name.
const NAME: usize = 12;

/// Everything that is shown.
pub(super) struct Listing {
    pub(super) by: Option<By>,
    pub(super) running: Vec<Entry>,
    pub(super) exited: Vec<Entry>,
    pub(super) groups: Vec<Entry>,
    /// The sources of each process's samples.
    pub(super) sources: String,
    /// The cost of profiling, by process.
    pub(super) costs: Vec<String>,
    pub(super) blind_spots: Vec<String>,
    /// The processes whose interval is raised.
    pub(super) raised: Vec<String>,
}

impl Listing {
    pub(super) fn text(&self, width: usize) -> String {
        let Listing { by, running, exited, groups, sources, costs, blind_spots, raised } = self;
        if running.is_empty() && exited.is_empty() && groups.is_empty() {
            return "no process is profiled\n".to_owned();
        }
        let mut out = String::new();
        if let Some(by) = by {
            let heads = HEADS.map(str::to_owned);
            let heads = [&["PROCS".to_owned()][..], &heads[..5]].concat();
            out += &row(&heads, &by.name().to_uppercase(), width);
            let nameless = by.nameless();
            out.extend(groups.iter().map(|of| row(&numbers(of)[..6], name(of, nameless), width)));
            return out;
        }
        let heads = HEADS.map(str::to_owned);
        out += &row(&[&["PID".to_owned()][..], &heads[..]].concat(), "COMMAND", width);
        out.extend(running.iter().map(|entry| line(entry, width)));
        if !exited.is_empty() {
            out += "exited\n";
            out.extend(exited.iter().map(|entry| line(entry, width)));
        }
        if !groups.is_empty() {
            let count: u64 = groups.iter().map(|group| group.number).sum();
            let processes = if count == 1 { "process" } else { "processes" };
            let count = grouped(count);
            out += &format!("exited: {count} {processes}, by command (--exited lists each)\n");
            out.extend(groups.iter().map(|entry| line(entry, width)));
        }
        if !sources.is_empty() {
            out += &paragraph("source:", sources, 8, width);
        }
        costs.iter().for_each(|cost| out += &paragraph("cost:", cost, 6, width));
        raised.iter().for_each(|line| out += &paragraph("raised:", &shown(line), 8, width));
        blind_spots.iter().for_each(|reason| out += &paragraph("blind:", &shown(reason), 7, width));
        out
    }
}

fn line(of: &Entry, width: usize) -> String {
    row(&numbers(of), name(of, "(not known)"), width)
}

fn numbers(of: &Entry) -> [String; 8] {
    let samples = of.samples;
    [
        of.number.to_string(),
        of.allocated.map_or_else(
            || "-".to_owned(),
            |bytes| {
                format!("{}{}", if of.is_estimate { "~" } else { "" }, human_bytes(bytes as f64))
            },
        ),
        of.held.map_or_else(|| "-".to_owned(), |held| human_bytes(held.value)),
        of.spread.as_ref().map(plus_minus).unwrap_or_default(),
        of.rss.map_or_else(|| "-".to_owned(), |bytes| human_bytes(bytes as f64)),
        if samples < 1_000_000 { grouped(samples) } else { human_count(samples as f64) },
        if of.interval == 0 { String::new() } else { short_bytes(of.interval) },
        of.share.map(percent).unwrap_or_default(),
    ]
}

fn name<'a>(of: &'a Entry, nameless: &'a str) -> &'a str {
    if of.name.is_empty() { nameless } else { &of.name }
}

fn row(numbers: &[String], name: &str, width: usize) -> String {
    let columns = WIDTHS[..numbers.len()].iter().map(|width| width + 1).sum::<usize>() + 1;
    let numbers = numbers.iter().zip(WIDTHS).map(|(number, width)| right(number, width));
    let numbers = numbers.collect::<Vec<_>>().join(" ");
    let room = width.saturating_sub(columns).max(NAME);
    let name = shown(name);
    // The end of a path matters most, the beginning of an id.
    let name = if name.contains('/') { end(&name, room) } else { middle(&name, room) };
    format!("{}\n", format!("{numbers}  {name}").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::encode::text::layout::columns;

    fn entry(number: u64, name: &str) -> Entry {
        Entry {
            number,
            name: name.into(),
            allocated: Some(u64::MAX),
            is_estimate: true,
            held: None,
            spread: None,
            rss: Some(u64::MAX),
            samples: u64::MAX,
            interval: 1 << 32,
            arrived: 0,
            share: Some(0.123),
        }
    }

    #[test]
    fn processes_without_a_window_sample_are_not_shown_as_0() {
        let unmet = line(&Entry { allocated: None, ..entry(7, "x") }, 80);
        assert!(unmet.starts_with("      7         -        -"), "{unmet}");
    }

    #[test]
    fn lists_fit_the_page() {
        let long = "/wörd\u{1b}[2J ".repeat(20);
        let listing = |by| Listing {
            by,
            running: vec![entry(4_194_304, &long)],
            exited: vec![entry(1, "x")],
            groups: vec![entry(9_999_999, &long), entry(2, "")],
            sources: "uprobes: x 1, ".repeat(20),
            costs: vec!["pid 1: much".repeat(20)],
            blind_spots: vec![long.clone()],
            raised: vec![long.clone()],
        };
        for by in [None, Some(By::Container)] {
            for width in [78, 80, 120] {
                let text = listing(by).text(width);
                assert!(text.lines().all(|line| columns(line) <= width), "{text}");
                let nameless = if by.is_some() { "(none known)" } else { "(not known)" };
                assert!(!text.contains('\u{1b}') && text.contains(nameless), "{text}");
            }
        }
    }

    #[test]
    fn an_empty_listing_is_one_line() {
        let none = Listing {
            by: None,
            running: vec![],
            exited: vec![],
            groups: vec![],
            sources: String::new(),
            costs: vec![],
            blind_spots: vec![],
            raised: vec![],
        };
        assert_eq!(none.text(80), "no process is profiled\n");
    }
}
