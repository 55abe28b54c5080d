//! The differential flame graph. A frame's width is its amount; its color says whether it has
//! changed by more than chance.

use super::super::comparison::text as table;
use super::super::comparison::text::signed;
use super::super::name;
use super::super::sums::{Frame, WidestFrames};
use super::super::text::short::short;
use super::super::xml::escaped;
use super::MAX_FRAMES;
use super::page::{COLUMNS, Drawn, LABEL, NAME, Page, ROW, close, open};
use crate::comparison::{Comparison, FALSE_DISCOVERY_RATE, Judge, Rows};
use crate::estimate::{Difference, Moments};
use crate::units::{grouped, human_bytes};
use std::io::{self, Write};

/// Writes the flame graph of what changed. The width of a frame is the sum of its stacks' larger
/// sides, so that disappeared stacks are drawn too.
///
/// A frame's interval is made from the summed moments of its stacks. All drawn frames are tested
/// together ([`crate::comparison::Judge::changed`]). A frame's color says that its sum has changed.
/// That can be so even if none of its stacks has samples enough to tell.
pub fn difference(of: &Comparison, rows: &Rows, out: &mut dyn Write) -> io::Result<()> {
    let judge = &rows.judge;
    let larger = |pair: &[Moments; 2]| judge.values(pair).into_iter().fold(0.0, f64::max);
    let tree = WidestFrames::of(&rows.stacks, larger, MAX_FRAMES);
    let sums: Vec<([Moments; 2], Difference)> =
        tree.frames.iter().map(|frame| (frame.sum, judge.difference(&frame.sum))).collect();
    let changed = judge.changed(&sums);
    let is_same = if judge.tests() { "within chance" } else { "nothing seen in between" };
    let head = head(of, judge, &tree, changed.iter().filter(|changed| **changed).count());
    let base = (head.len() + 2 + tree.depth()) * ROW;
    open("difference", base + 4 * ROW, &head, out)?;
    legend((head.len() + 1) * ROW, is_same, out)?;
    let page = Page { width: tree.width, base };
    let picture = Picture { page, per_second: of.per_second, is_same };
    picture.whole(&of.space, &tree, out)?;
    for (frame, ((_, difference), changed)) in tree.frames.iter().zip(sums.iter().zip(changed)) {
        picture.frame(frame, difference, changed, out)?;
    }
    close(base + 2 * ROW, out)
}

fn head(
    of: &Comparison,
    judge: &Judge,
    tree: &WidestFrames<[Moments; 2]>,
    changed: usize,
) -> Vec<String> {
    let text = table::text(of, COLUMNS, 0);
    let stacks = |line: &&str| !line.starts_with('…');
    let mut lines: Vec<String> = text.lines().filter(stacks).map(str::to_owned).collect();
    let why = match judge.tests() {
        true => format!(
            "their sums changed, at most {}% of such by chance",
            100.0 * FALSE_DISCOVERY_RATE
        ),
        false => "something was allocated there in between".to_owned(),
    };
    lines.push(format!(
        "frames    {} of {} colored: {why}; intervals are pointwise",
        grouped(changed as u64),
        grouped(tree.frames.len() as u64),
    ));
    let mut width = "width     of A and B what is more, stack by stack".to_owned();
    if tree.left_out > 0 {
        width += &format!("; {} narrower frames are not drawn", grouped(tree.left_out as u64));
    }
    lines.push(width);
    lines
}

/// The legend of the colors.
fn legend(y: usize, is_same: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<g class=\"legend\">")?;
    let entries = [(3, "up", "more in B"), (123, "down", "less in B"), (243, "same", is_same)];
    for (x, class, text) in entries {
        let (top, right) = (y - 10, x + 16);
        writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{top}\" width=\"12\" height=\"12\"/>\
             <text x=\"{right}\" y=\"{y}\">{text}</text>"
        )?;
    }
    writeln!(out, "</g>")
}

struct Picture {
    page: Page,
    per_second: bool,
    /// Label of frames that have not changed.
    is_same: &'static str,
}

impl Picture {
    fn whole(
        &self,
        of: &Difference,
        tree: &WidestFrames<[Moments; 2]>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let title = format!("all\n{}", self.numbers(of, &tree.total));
        let (width, ends) = (self.page.width, [self.page.width; 2]);
        let drawn =
            Drawn { depth: 0, start: 0.0, width, ends, label: "all", title: &title, class: "same" };
        self.page.draw(&drawn, out)
    }

    fn frame(
        &self,
        frame: &Frame<[Moments; 2]>,
        of: &Difference,
        changed: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let full = name::shown(frame.name);
        let label = short(&full, LABEL);
        let class = match changed {
            true if of.value > 0.0 => "up",
            true => "down",
            false => "same",
        };
        let verdict = if changed { String::new() } else { format!(", {}", self.is_same) };
        let title =
            format!("{}\n{}{verdict}", escaped(&short(&full, NAME)), self.numbers(of, &frame.sum));
        let drawn = Drawn {
            depth: frame.depth + 1,
            start: frame.start,
            width: frame.width,
            ends: [frame.width; 2],
            label: &escaped(&label),
            title: &title,
            class,
        };
        self.page.draw(&drawn, out)
    }

    /// `12.0 MiB → 19.2 MiB, +7.20 MiB (+5.10 MiB … +9.55 MiB), 120 → 190 samples`.
    fn numbers(&self, of: &Difference, sum: &[Moments; 2]) -> String {
        let rate = if self.per_second { "/s" } else { "" };
        let [a, b] = [of.a, of.b].map(human_bytes);
        let [value, low, high] = [of.value, of.low, of.high].map(|of| signed(of, human_bytes));
        let [before, after] = sum.map(|side| grouped(side.samples));
        format!("{a}{rate} → {b}{rate}, {value} ({low} … {high}), {before} → {after} samples")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bare, boxes, of_class};
    use super::*;
    use crate::comparison::{Question, compare, rows};
    use crate::encode::fixture;
    use crate::profile::{Kind, Profile};
    use roxmltree::Document;

    fn drawn(a: &Profile, b: &Profile) -> String {
        drawn_for(&fixture::question(a, b))
    }

    fn drawn_for(question: &Question<'_>) -> String {
        let (comparison, rows) = (compare(question).unwrap(), rows(question).unwrap());
        let mut out = Vec::new();
        difference(&comparison, &rows, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Compares the fixture with a copy that lacks one stack.
    fn changed() -> String {
        let (a, mut b) = (fixture::profile(Kind::Alloc), fixture::profile(Kind::Alloc));
        b.stacks.remove(1);
        b.stacks_total -= 1;
        drawn(&a, &b)
    }

    /// First line of the titles of all frames of a color.
    fn colored(text: &str, class: &str) -> Vec<String> {
        let document = Document::parse(text).unwrap();
        let frames = of_class(&document, "f");
        let has = |frame: &roxmltree::Node| {
            frame.children().any(|child| child.attribute("class") == Some(class))
        };
        let name = |frame: roxmltree::Node| {
            let title = frame.first_element_child().and_then(|title| title.text());
            title.unwrap().lines().next().unwrap().to_owned()
        };
        frames.into_iter().filter(has).map(name).collect()
    }

    #[test]
    fn golden() {
        fixture::golden("difference.svg", bare(&changed()));
    }

    #[test]
    fn only_significant_changes_are_colored() {
        let text = changed();
        let down = colored(&text, "down");
        assert!(down.iter().any(|name| name.contains("libcodec.so")), "{down:?}");
        assert_eq!(colored(&text, "up"), Vec::<String>::new());
        assert!(colored(&text, "same").iter().any(|name| name.starts_with("Store::put")));
        assert!(text.contains("within chance</text>") && text.contains("more in B</text>"));
        let same = fixture::profile(Kind::Alloc);
        let text = drawn(&same, &same);
        assert!(colored(&text, "up").is_empty() && colored(&text, "down").is_empty());
        assert!(text.contains("frames    0 of "), "{text}");
    }

    /// A is since attach, and B since attach a second later: samples between A and B were allocated
    /// between A and B.
    #[test]
    fn allocations_between_nested_profiles_are_colored() {
        let a = fixture::profile(Kind::Alloc);
        let mut b = a.clone();
        b.time_unix_ns += 1_000_000_000;
        b.duration_ns += 1_000_000_000;
        b.stacks[1].quantities.alloc_space.moments.add_samples(1, 200.0, 0.0005);
        let text = drawn_for(&Question { independent: false, ..fixture::question(&a, &b) });
        let up = colored(&text, "up");
        assert!(up.iter().any(|name| name.contains("libcodec.so")), "{up:?}");
        assert!(colored(&text, "same").iter().any(|name| name.starts_with("Store::put")));
        assert!(text.contains("nothing seen in between</text>") && !text.contains("chance"));
    }

    #[test]
    fn frames_lie_within_their_callers_and_have_intervals() {
        for text in [changed(), drawn(&fixture::empty(), &fixture::profile(Kind::Live))] {
            let document = Document::parse(&text).unwrap();
            let mut callers: Vec<(f64, f64)> = Vec::new();
            for (start, value, depth) in boxes(&document) {
                callers.truncate(depth);
                if let Some((outer, width)) = callers.last() {
                    assert!(start >= outer - 1.0 && start + value <= outer + width + 2.0);
                }
                callers.push((start, value));
            }
            for frame in of_class(&document, "f") {
                let title = frame.first_element_child().unwrap().text().unwrap();
                assert!(title.contains(" → ") && title.contains(" … "), "{title}");
            }
        }
    }

    #[test]
    fn hostile_names_are_text_and_nothing_else() {
        let mut profile = fixture::hostile();
        let script = "</text></svg><script>alert(1)</script>]]>\" onload=\"alert(2)";
        profile.locations[2].lines[0].function = script.into();
        let text = drawn(&fixture::hostile(), &profile);
        let document = Document::parse(&text).unwrap();
        let scripts = document.descendants().filter(|node| node.has_tag_name("script"));
        assert_eq!(scripts.count(), 1);
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}') && !text.contains("NaN"));
    }
}
