//! The largest stacks, leaf first.

use super::short::short;
use super::{Page, bytes_of, layout, plural};
use crate::encode::NO_STACK;
use crate::estimate::plus_minus;
use crate::profile::{Frame, Profile, Stack, leaf_first};
use crate::units::{grouped, human_bytes, share};
use std::io::{self, Write};

/// Frames that are shown of one stack: from the leaf, and from the root if there are more.
const LEAF_FRAMES: usize = 14;
const ROOT_FRAMES: usize = 3;
const INDENT: usize = 4;

pub(super) fn write(
    profile: &Profile,
    page: Page,
    count: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    // If functions are shown, stacks that show the same path are merged already.
    let merged = profile.functions.is_none().then(|| {
        let mut merged = profile.clone();
        merged.merge_paths(Profile::quantities_of);
        merged
    });
    let profile = merged.as_ref().unwrap_or(profile);
    let held = |stack: &&Stack| stack.quantities.space(profile.kind).estimate.value > 0.0;
    for stack in profile.stacks.iter().filter(held).take(count) {
        writeln!(out)?;
        writeln!(out, "{}", page.bold(&heading(profile, stack)))?;
        let frames: Vec<Frame> = leaf_first(profile, stack).collect();
        if frames.is_empty() {
            writeln!(out, "{}{NO_STACK}", " ".repeat(INDENT))?;
        }
        let left_out = frames.len().saturating_sub(LEAF_FRAMES + ROOT_FRAMES);
        // A line that says "1 more" would take the place of the omitted frame.
        let left_out = if left_out == 1 { 0 } else { left_out };
        for (index, frame) in frames.iter().enumerate() {
            if left_out > 0 && index == LEAF_FRAMES {
                let more = format!("… {left_out} more frames");
                writeln!(out, "{}{}", " ".repeat(INDENT), page.dim(&more))?;
            }
            if left_out == 0 || !(LEAF_FRAMES..LEAF_FRAMES + left_out).contains(&index) {
                writeln!(out, "{}", frame_line(*frame, page))?;
            }
        }
    }
    let rest = profile.stacks_total.saturating_sub(count as u64);
    if rest > 0 && !profile.stacks.is_empty() {
        let more = format!("… {} more {} (--top N shows N)", grouped(rest), plural(rest, "stack"));
        writeln!(out, "\n{}", page.dim(&more))?;
    }
    Ok(())
}

fn heading(profile: &Profile, stack: &Stack) -> String {
    let whole = profile.totals.space(profile.kind).estimate.value;
    let space = &stack.quantities.space(profile.kind).estimate;
    let samples = plural(space.samples, "sample");
    let pid = match (stack.pid, stack.row.processes().count() as u64) {
        (0, 0 | 1) => String::new(),
        (0, n) => format!(", {} processes", grouped(n)),
        (pid, _) => format!(", pid {pid}"),
    };
    let (bytes, held) = (human_bytes(space.value), bytes_of(profile.kind));
    let front = match space.has_interval() {
        true => format!("{bytes} {} {held} ({})", plus_minus(space), share(space.value, whole)),
        // "no interval" replaces the interval, or the line would be too long for a narrow page.
        false => format!("{bytes} {held}, no interval"),
    };
    format!("{front}, {} {samples}{pid}", grouped(space.samples))
}

fn frame_line(frame: Frame, page: Page) -> String {
    let (function, place) = (frame.name(), frame.place());
    let room = page.width - INDENT;
    let place = layout::end(&place, room * 2 / 5);
    let function = short(&function, room - 2 - layout::columns(&place)).into_owned();
    let line = format!("{}{function}  {}", " ".repeat(INDENT), page.dim(&place));
    line.trim_end().to_owned()
}
