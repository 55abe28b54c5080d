//! Bytes × seconds: the cost of holding memory, by who held how much for how long.

use super::super::interval::byte_seconds;
use super::super::name;
use super::super::sums::{Frame, WidestFrames};
use super::super::text::layout::wrapped;
use super::super::text::short::short;
use super::super::xml::escaped;
use super::MAX_FRAMES;
use super::page::{CLASSES, COLORS, COLUMNS, Drawn, LABEL, NAME, Page, ROW, close, color, open};
use crate::estimate::{Confidence, Moments, weighted};
use crate::lifetimes::Lifetimes;
use crate::units::grouped;
use std::io::{self, Write};

/// Writes the flame graph of bytes × seconds held until now. A sample counts with its weight times
/// the time that it was held.
///
/// A frame's interval is made from the summed moments of its stacks.
pub fn space_time(of: &Lifetimes, out: &mut dyn Write) -> io::Result<()> {
    let stacks: Vec<(Vec<String>, Moments)> =
        of.stacks.iter().map(|stack| (stack.frames.clone(), stack.lifetime.moments)).collect();
    let tree = WidestFrames::of(&stacks, |of| of.sum, MAX_FRAMES);
    let head = head(of, &tree);
    let base = (head.len() + 1 + tree.depth()) * ROW;
    open("byte-seconds", base + 4 * ROW, &head, out)?;
    let picture = Picture { confidence: of.confidence, page: Page { width: tree.width, base } };
    picture.whole(&tree.total, out)?;
    for frame in &tree.frames {
        picture.frame(frame, out)?;
    }
    close(base + 2 * ROW, out)
}

fn head(of: &Lifetimes, tree: &WidestFrames<Moments>) -> Vec<String> {
    let level = (of.confidence.level() * 1e9).round() / 1e7;
    let total = &of.total;
    let mut lines = vec![
        "Memory held since attach, times how long it was held".to_owned(),
        format!("held      {} (bytes × seconds)", byte_seconds(&total.byte_seconds)),
        format!(
            "sampled   {} samples, {} freed and {} held, ± at {level}%",
            grouped(total.samples),
            grouped(total.freed),
            grouped(total.held)
        ),
    ];
    for note in &of.notes {
        let parts = wrapped(&name::shown(&note.to_string()), COLUMNS - 10);
        lines.extend(parts.iter().map(|part| format!("note      {part}")));
    }
    let cut = of.stacks_total.saturating_sub(of.stacks.len() as u64);
    let mut width =
        "width     bytes × seconds: what is freed earlier, or not allocated, makes it narrower"
            .to_owned();
    if cut > 0 {
        width += &format!("; {} stacks with less are not in it", grouped(cut));
    }
    if tree.left_out > 0 {
        width += &format!("; {} frames with less are not drawn", grouped(tree.left_out as u64));
    }
    lines.extend(wrapped(&width, COLUMNS).iter().enumerate().map(|(index, part)| {
        if index == 0 {
            part.replacen("width ", "width     ", 1)
        } else {
            format!("          {part}")
        }
    }));
    lines
}

struct Picture {
    confidence: Confidence,
    page: Page,
}

impl Picture {
    fn whole(&self, total: &Moments, out: &mut dyn Write) -> io::Result<()> {
        let (numbers, ends) = self.numbers(total);
        let title = format!("all\n{numbers}");
        let (width, class) = (self.page.width, CLASSES[COLORS]);
        let drawn = Drawn { depth: 0, start: 0.0, width, ends, label: "all", title: &title, class };
        self.page.draw(&drawn, out)
    }

    fn frame(&self, frame: &Frame<Moments>, out: &mut dyn Write) -> io::Result<()> {
        let full = name::shown(frame.name);
        let label = short(&full, LABEL);
        let (numbers, ends) = self.numbers(&frame.sum);
        let title = format!("{}\n{numbers}", escaped(&short(&full, NAME)));
        let class = if full.starts_with('[') { CLASSES[COLORS] } else { color(&full) };
        let drawn = Drawn {
            depth: frame.depth + 1,
            start: frame.start,
            width: frame.width,
            ends,
            label: &escaped(&label),
            title: &title,
            class,
        };
        self.page.draw(&drawn, out)
    }

    /// `1.21 GiB·s ±6% (1.14 GiB·s … 1.28 GiB·s) held, 45.6%, 1,210 samples`, and the ends of the
    /// interval.
    fn numbers(&self, moments: &Moments) -> (String, [f64; 2]) {
        let estimate = weighted(moments, 1.0, self.confidence);
        let noun = if estimate.samples == 1 { "sample" } else { "samples" };
        let text = format!(
            "{} held, {:.1}%, {} {noun}",
            byte_seconds(&estimate),
            self.page.percent(estimate.value),
            grouped(estimate.samples),
        );
        (text, [estimate.low, estimate.high])
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bare, boxes, of_class};
    use super::*;
    use crate::encode::fixture;
    use crate::lifetimes::{Lifetime, Stack};
    use crate::profile::{Kind, Profile};
    use roxmltree::Document;

    /// The stacks of a profile; each of a stack's samples has held its bytes for a second.
    fn lifetimes(profile: &Profile) -> Lifetimes {
        let lifetime = |moments: &Moments| {
            Lifetime::new(Vec::new(), moments, (moments.samples, 0), 1.2, Confidence::DEFAULT)
        };
        let stacks = profile.stacks.iter().map(|stack| Stack {
            pid: stack.pid,
            frames: profile.frames(stack).map(|line| line.function.clone()).collect(),
            lifetime: lifetime(&stack.quantities.alloc_space.moments),
        });
        Lifetimes {
            confidence: Confidence::DEFAULT,
            time_unix_ns: 1,
            total: lifetime(&profile.totals.alloc_space.moments),
            stacks: stacks.collect(),
            stacks_total: profile.stacks_total,
            notes: vec!["7 samples were freed unseen and are left out (raise --ring)".into()],
        }
    }

    fn drawn(of: &Lifetimes) -> String {
        let mut out = Vec::new();
        space_time(of, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn golden() {
        let text = drawn(&lifetimes(&fixture::profile(Kind::Live)));
        fixture::golden("byte-seconds.svg", bare(&text));
    }

    #[test]
    fn every_title_has_the_interval_of_its_sum() {
        let of = lifetimes(&fixture::profile(Kind::Live));
        let text = drawn(&of);
        let document = Document::parse(&text).unwrap();
        assert_eq!(document.root_element().attribute("data-unit"), Some("byte-seconds"));
        for frame in of_class(&document, "f") {
            let title = frame.first_element_child().unwrap().text().unwrap();
            assert!(title.contains("iB·s ±") && title.contains(" … "), "{title}");
        }
        // The outermost frame is as wide as all stacks, and has the interval of their summed
        // moments.
        assert!((boxes(&document)[0].1 - of.total.moments.sum).abs() < 1.0);
        let ends = of.total.byte_seconds;
        let whole = format!(" {:.0} {:.0}\" data-d=\"0\"", ends.low, ends.high);
        assert!(text.contains(&whole), "{whole}");
    }

    #[test]
    fn hostile_and_empty_profiles_give_valid_pictures() {
        let text = drawn(&lifetimes(&fixture::hostile()));
        assert!(Document::parse(&text).is_ok() && !text.contains('\u{1b}'));
        let text = drawn(&lifetimes(&fixture::empty()));
        assert_eq!(boxes(&Document::parse(&text).unwrap()), [(0.0, 0.0, 0)]);
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn the_picture_of_many_stacks_has_a_bounded_size() {
        let mut of = lifetimes(&fixture::profile(Kind::Live));
        let model = of.stacks.clone();
        of.stacks = (0..100_000usize)
            .map(|index| {
                let mut stack = model[index % model.len()].clone();
                stack.frames.insert(1, format!("f{}", index % 317));
                stack.frames.insert(2, format!("g{}", index / 317));
                stack
            })
            .collect();
        // Frames that are too narrow to be seen are left out.
        let text = drawn(&of);
        assert!(text.ends_with("</svg>\n") && text.len() < 20_000_000, "{} bytes", text.len());
    }
}
