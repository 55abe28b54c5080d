//! The list: its headings and its lines.

use super::cells::{self, Numbers, aligned};
use super::{Theme, paint, put};
use crate::top::columns::{Column, fitting};
use crate::top::model::{List, Model, OTHER_LINES};
use ratatui::buffer::Buffer;
use ratatui::text::Span;
use sampler_common::encode::text::layout::wrapped;
use sampler_common::units::human_duration;

/// The line of the headings.
const HEADS: u16 = 4;

pub(super) fn draw(model: &Model, theme: Theme, buffer: &mut Buffer) {
    let width = usize::from(buffer.area.width);
    let fitting = fitting(model.page().specs(), width);
    paint(buffer, HEADS, theme.heads());
    put(buffer, HEADS, heads(model, &fitting, theme));
    let lines = model.lines();
    let cursor = &model.page().cursor;
    let height = usize::from(buffer.area.height).saturating_sub(OTHER_LINES);
    let shown = lines.iter().enumerate().skip(cursor.first).take(height);
    for (line, (at, index)) in (HEADS + 1..).zip(shown) {
        put(buffer, line, cells_of(model, *index, &fitting, theme));
        if at == cursor.at {
            paint(buffer, line, theme.marked());
        }
    }
    if lines.is_empty() {
        for (line, text) in (HEADS + 2..).zip(wrapped(&nothing(model), width.saturating_sub(2))) {
            put(buffer, line, vec![Span::raw(format!(" {text}"))]);
        }
    }
}

fn heads(model: &Model, fitting: &[(Column, usize)], theme: Theme) -> Vec<Span<'static>> {
    if let List::Frames(frames) = &model.page().list {
        return vec![Span::raw(format!("{:>4} frames, the allocating one first", frames.len()))];
    }
    let is_rate = model.detail().is_some_and(|of| of.seconds.is_some());
    let sorted = model.sorted();
    let mut spans = Vec::new();
    for (column, width) in fitting {
        let mut name = column.head(is_rate).to_owned();
        if *column == Column::Name {
            name = match model.page().list {
                List::Processes => "COMMAND",
                List::Functions => "FUNCTION",
                _ => "STACK, LEAF FIRST",
            }
            .to_owned();
        }
        let name = aligned(&name, *column, *width);
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        let style = if *column == sorted { theme.sorted() } else { theme.heads() };
        spans.push(Span::styled(name, style));
    }
    spans
}

fn cells_of(
    model: &Model,
    index: usize,
    fitting: &[(Column, usize)],
    theme: Theme,
) -> Vec<Span<'static>> {
    if let List::Frames(frames) = &model.page().list {
        return model
            .frame_lines(frames)
            .into_iter()
            .nth(index)
            .map(Span::raw)
            .into_iter()
            .collect();
    }
    let numbers = match (&model.page().list, model.detail()) {
        (List::Functions, Some(detail)) => Some(Numbers::of(&detail.functions.0[index], detail)),
        _ => None,
    };
    let mut spans = Vec::new();
    for (column, width) in fitting {
        let text = match (&model.page().list, model.detail(), &numbers) {
            (List::Processes, _, _) => {
                cells::process(model, &model.processes()[index], *column, *width)
            }
            (List::Functions, Some(detail), Some(numbers)) => {
                let function = &detail.functions.0[index];
                cells::function(model, detail, function, numbers, *column, *width)
            }
            (_, Some(detail), _) => cells::stack(detail, index, *column, *width),
            (_, None, _) => String::new(),
        };
        if !spans.is_empty() {
            spans.push(Span::raw(" "));
        }
        let text = aligned(&text, *column, *width);
        spans.push(match column {
            Column::History => Span::styled(text, theme.history()),
            column if is_error(*column) => Span::styled(text, theme.dim()),
            _ => Span::raw(text),
        });
    }
    spans
}

fn is_error(column: Column) -> bool {
    column.head(false) == "±"
}

/// Says why the list is empty.
fn nothing(model: &Model) -> String {
    let page = model.page();
    if let Some(why) = model.refused().filter(|_| model.opened.is_some()) {
        return why.to_owned();
    }
    if !page.filter.is_empty() {
        return format!("nothing has \"{}\" in it (F4 or \\ to change that)", page.filter);
    }
    match (&page.list, &model.opened) {
        (List::Processes, _) if model.snapshot.is_none() => "asking samplerd …".to_owned(),
        (List::Processes, _) => "no process is profiled (samplerd --pid PID, or --all)".to_owned(),
        (_, Some(_)) if model.detail().is_none() => {
            let waited = human_duration(model.now.saturating_sub(model.requested_at));
            format!(
                "asked samplerd for the profile {waited} ago; the first time it reads the programs' symbols"
            )
        }
        (List::Stacks(Some(_)), _) => "it has no samples any more (Esc goes back)".to_owned(),
        _ => "no sample yet".to_owned(),
    }
}
