//! Windows over the list: the help, and the menu of columns.

use super::{Theme, put};
use crate::top::model::Model;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use sampler_common::encode::text::layout::left;

const HELP: &str = "\
sampler top: which processes allocate, and which code in them

 ↑ ↓ PgUp PgDn Home End   move            Enter   open: process, function, stack
 / F3   search, n the next                Esc     back; first ends a filter
 \\ F4   filter                            t F5    functions or stacks
 > F6   sort by; I the other way round    w       10 s, 1 m, 10 m, since attach
 a l p Tab   allocated, live, peak        Space z freeze, go on
 h F1   this help                         q F10   quit

 ALLOC/s, OBJ/s  every call is counted, by samplerd's clock: exact, so no ±
 HELD, SELF, TOTAL, COST  estimates; ± is the larger distance to an end of the
                 95% interval, in percent of the number
 HISTORY         of what is allocated, or of what is held when sorted by that;
                 the largest that is shown is a full bar
 COST            share of the process's CPU time spent in probes since attach
 SELF, TOTAL     of a function itself, and with all that it calls; by the
                 second where a window of time is looked at (w)

 Numbers that are not known are -: no exact counts of processes that sample by
 themselves or with --windows, nothing held where frees are not followed.";

pub(super) fn help(theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    for line in 0..area.height {
        clear(buffer, line, area.width);
    }
    for (line, text) in (0..area.height).zip(HELP.lines()) {
        let style = if line == 0 { theme.bold() } else { ratatui::style::Style::new() };
        put(buffer, line, vec![Span::styled(text, style)]);
    }
    let last = area.height.saturating_sub(1);
    clear(buffer, last, area.width);
    put(buffer, last, vec![Span::styled("any key goes back", theme.dim())]);
}

fn clear(buffer: &mut Buffer, line: u16, width: u16) {
    let area = buffer.area;
    let line = Rect { x: area.x, y: area.y + line, width, height: 1 };
    for position in line.positions() {
        buffer[position].reset();
    }
}

/// Width of the menu.
const MENU: usize = 16;

pub(super) fn menu(model: &Model, at: usize, theme: Theme, buffer: &mut Buffer) {
    let is_rate = model.detail().is_some_and(|of| of.seconds.is_some());
    let choices = model.choices();
    let names = choices.iter().filter_map(|column| column.in_menu(is_rate));
    let first = 4;
    let last = buffer.area.height.saturating_sub(1);
    clear(buffer, first, MENU as u16);
    buffer.set_string(0, first, left(" Sort by", MENU), theme.heads());
    // The marked column stays on the screen, however small the screen is.
    let room = usize::from(last.saturating_sub(first + 1)).max(1);
    let skipped = (at + 1).saturating_sub(room);
    for (line, (index, name)) in (first + 1..last).zip(names.enumerate().skip(skipped)) {
        clear(buffer, line, MENU as u16);
        let style = if index == at { theme.marked() } else { ratatui::style::Style::new() };
        buffer.set_string(0, line, left(&format!("  {name}"), MENU), style);
    }
}
