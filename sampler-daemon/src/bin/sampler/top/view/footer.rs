//! The last line: the keys, or the text that the user types.

use super::{Theme, put};
use crate::top::model::{List, Model, Prompt};
use ratatui::buffer::Buffer;
use ratatui::text::Span;
use sampler_common::encode::name::shown;

pub(super) fn draw(model: &Model, theme: Theme, buffer: &mut Buffer) {
    let line = buffer.area.height.saturating_sub(1);
    let spans = match model.prompt {
        Some(prompt) => typed(model, prompt, theme),
        None => keys(model, theme),
    };
    put(buffer, line, spans);
}

fn typed(model: &Model, prompt: Prompt, theme: Theme) -> Vec<Span<'static>> {
    let (name, text, next) = match prompt {
        Prompt::Search => ("Search: ", &model.search, "F3"),
        Prompt::Filter => ("Filter: ", &model.page().filter, ""),
    };
    let text = if text.is_empty() { "".into() } else { shown(text).into_owned() };
    let mut spans = Vec::new();
    let keys = [(next, "Next"), ("Enter", "Done"), ("Esc", "Cancel")];
    for (key, label) in keys.into_iter().filter(|(key, _)| !key.is_empty()) {
        spans.push(Span::raw(key));
        spans.push(Span::styled(format!("{label} "), theme.label()));
    }
    spans.push(Span::raw(format!(" {name}{text}")));
    spans.push(Span::styled(" ", theme.marked()));
    spans
}

fn keys(model: &Model, theme: Theme) -> Vec<Span<'static>> {
    let list = &model.page().list;
    let other = match list {
        List::Functions => "Stacks",
        List::Stacks(None) => "Functions",
        _ => "",
    };
    let frozen = if model.frozen { "Go on" } else { "Freeze" };
    let is_opened = model.opened.is_some();
    let keys = [
        ("F1", "Help"),
        ("F3", "Search"),
        ("F4", "Filter"),
        ("F5", other),
        ("F6", "Sort"),
        ("Tab", "Kind"),
        ("z", frozen),
        ("Enter", if matches!(list, List::Frames(_)) { "" } else { "Open" }),
        ("Esc", if is_opened { "Back" } else { "" }),
        ("q", "Quit"),
    ];
    let mut spans = Vec::new();
    for (key, label) in keys.into_iter().filter(|(_, label)| !label.is_empty()) {
        spans.push(Span::raw(key));
        spans.push(Span::styled(label, theme.label()));
        spans.push(Span::raw(" "));
    }
    spans
}
