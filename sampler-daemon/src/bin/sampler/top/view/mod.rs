//! Drawing of the state. Pure: no terminal, no time.

mod body;
mod cells;
mod footer;
mod head;
mod over;
#[cfg(test)]
mod tests;
mod theme;

pub(super) use theme::Theme;

use super::model::{Model, OTHER_LINES, Over};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The smallest size. A smaller terminal shows this size instead of the page.
const SMALLEST: (u16, u16) = (40, OTHER_LINES as u16 + 2);

/// Draws everything.
pub(super) fn draw(model: &Model, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (columns, lines) = SMALLEST;
        let text = format!("the terminal is too small ({columns} x {lines} at least)");
        put(buffer, 0, vec![Span::raw(text)]);
        return;
    }
    head::draw(model, theme, buffer);
    body::draw(model, theme, buffer);
    footer::draw(model, theme, buffer);
    match model.over {
        Some(Over::Help) => over::help(theme, buffer),
        Some(Over::Menu(at)) => over::menu(model, at, theme, buffer),
        None => {}
    }
}

/// Draws a line of the screen, cut at the right edge.
fn put(buffer: &mut Buffer, line: u16, spans: Vec<Span<'_>>) {
    let area = buffer.area;
    if line < area.height {
        buffer.set_line(area.x, area.y + line, &Line::from(spans), area.width);
    }
}

/// Sets the style of a whole line.
fn paint(buffer: &mut Buffer, line: u16, style: Style) {
    let area = buffer.area;
    if line < area.height {
        buffer.set_style(Rect { y: area.y + line, height: 1, ..area }, style);
    }
}
