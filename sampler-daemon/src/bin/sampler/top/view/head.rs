//! The lines above the list: the daemon, all processes together, the cost, and the title of the
//! page.

use super::Theme;
use super::cells::error;
use super::put;
use crate::top::data::Snapshot;
use crate::top::model::{List, Model};
use crate::top::rows;
use ratatui::buffer::Buffer;
use ratatui::text::Span;
use sampler_common::cost::{percent, plus_minus};
use sampler_common::encode::name::shown;
use sampler_common::encode::text::layout::{columns, middle};
use sampler_common::estimate::Estimate;
use sampler_common::profile::Kind;
use sampler_common::units::{
    grouped, human_bytes, human_count, human_cpu_time, human_duration, short_bytes,
};

/// Widths of a history: narrow and wide.
const HISTORY: (usize, usize) = (8, 24);

pub(super) fn draw(model: &Model, theme: Theme, buffer: &mut Buffer) {
    let width = usize::from(buffer.area.width);
    let lines = match &model.snapshot {
        Some(snapshot) => {
            [daemon(model, snapshot), totals(model, snapshot, width, theme), cost(snapshot, theme)]
        }
        None => [vec![Span::raw("asking samplerd …")], vec![], vec![]],
    };
    for (line, spans) in (0..).zip(lines) {
        put(buffer, line, spans);
    }
    if let Some((since, why)) = &model.lost {
        let waited = human_duration(model.now.saturating_sub(*since));
        let text = format!("no answer for {waited}: {}", shown(why));
        put(buffer, 2, vec![Span::styled(" ".repeat(width), theme.warning())]);
        put(buffer, 2, vec![Span::styled(middle(&text, width), theme.warning())]);
    }
    if model.frozen {
        let text = " FROZEN ";
        let at = buffer.area.width.saturating_sub(columns(text) as u16);
        buffer.set_string(at, 0, text, theme.frozen());
    }
    put(buffer, 3, title(model, theme));
}

fn daemon(model: &Model, snapshot: &Snapshot) -> Vec<Span<'static>> {
    let of = &snapshot.daemon;
    let running = snapshot.processes.len();
    let exited = match snapshot.exited {
        0 => String::new(),
        exited => format!(", {} exited", grouped(exited)),
    };
    let processes = if running == 1 { "process" } else { "processes" };
    let interval = match snapshot.interval_bytes {
        0 => String::new(),
        bytes => format!(", one sample per {}", short_bytes(bytes)),
    };
    let wide = if model.size.0 >= 100 { format!(", pid {}", of.pid) } else { String::new() };
    vec![Span::raw(format!(
        "samplerd {}{wide}, up {}{interval}; {} {processes}{exited}",
        of.version,
        human_duration(of.uptime),
        grouped(running as u64),
    ))]
}

fn totals(model: &Model, snapshot: &Snapshot, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let bars = if width >= 120 { HISTORY.1 } else { HISTORY.0 };
    let mut spans = vec![Span::styled("allocated ", theme.dim())];
    match model.rates.all.rate {
        Some(rate) => {
            let text = format!("{}/s, {}/s ", human_bytes(rate.bytes), human_count(rate.objects));
            spans.push(Span::styled(text, theme.bold()));
        }
        None => spans.push(Span::raw("…  ")),
    }
    spans.push(Span::styled(model.rates.all.allocated.bars(bars), theme.history()));
    spans.push(Span::styled("  held ", theme.dim()));
    match &snapshot.held {
        Some(held) => {
            let bytes = with_error(human_bytes(held.bytes.value), &held.bytes);
            let objects = with_error(human_count(held.objects.value), &held.objects);
            let text = format!("{bytes}, {objects} ");
            spans.push(Span::styled(text, theme.bold()));
            spans.push(Span::styled(model.rates.all.held.bars(bars), theme.history()));
        }
        None => spans.push(Span::raw("not followed")),
    }
    spans
}

/// Adds the error to a number. A zero has no error.
fn with_error(number: String, of: &Estimate) -> String {
    format!("{number} {}", error(of)).trim_end().to_owned()
}

fn cost(snapshot: &Snapshot, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = vec![Span::styled("overhead ", theme.dim())];
    let report = snapshot.cost.as_ref();
    let text = match report.and_then(|of| Some((of.share()?, of.spent_ns?))) {
        Some((share, spent)) => format!(
            "{}{} of CPU time since attach ({})",
            percent(share.value),
            plus_minus(&share),
            human_cpu_time(spent.value)
        ),
        None => match report.filter(|of| !of.why.is_empty()) {
            Some(of) => format!("not known: {}", shown(&of.why)),
            None => "not known".to_owned(),
        },
    };
    spans.push(Span::raw(text));
    spans.push(Span::styled("  lost ", theme.dim()));
    if snapshot.lost.is_empty() {
        spans.push(Span::raw("nothing"));
        return spans;
    }
    let lost = snapshot.lost.iter().map(|of| {
        let bytes = of.alloc_space.map(|of| of.estimate);
        let bytes = bytes.map(|of| format!(" ({} {})", human_bytes(of.value), error(&of)));
        format!("{} {}{}", shown(&of.outcome), grouped(of.samples), bytes.unwrap_or_default())
    });
    let lost: Vec<String> = lost.collect();
    spans.push(Span::styled(lost.join(", "), theme.warning()));
    spans
}

/// Returns the title of the page, its kind and its filter.
fn title(model: &Model, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    for kind in [Kind::Alloc, Kind::Live, Kind::Peak] {
        let style = if kind == model.kind { theme.marked() } else { theme.dim() };
        spans.push(Span::styled(format!(" {} ", kind.name()), style));
    }
    spans.push(Span::raw(" "));
    let page = model.page();
    if let Some(opened) = &model.opened {
        spans.push(Span::styled(format!("{} {}: ", opened.pid, opened.name), theme.bold()));
        spans.push(Span::raw(match &page.list {
            List::Functions => "functions".to_owned(),
            List::Stacks(None) => "stacks".to_owned(),
            List::Stacks(Some(key)) => {
                let name = key.first().map_or("", |(name, _)| name);
                format!("stacks through {}", middle(name, 24))
            }
            List::Frames(_) => "stack".to_owned(),
            List::Processes => String::new(),
        }));
    } else if model.kind == Kind::Peak {
        spans.push(Span::raw("held when most was: open a process to see it"));
    } else {
        spans.push(Span::styled("all processes", theme.bold()));
    }
    if !page.filter.is_empty() {
        spans.push(Span::styled(format!("  only \"{}\"", shown(&page.filter)), theme.warning()));
    }
    // The number comes last: on a narrow terminal the filter must stay visible.
    spans.push(Span::raw(of_profile(model)));
    spans
}

/// Returns the number that the page is about.
fn of_profile(model: &Model) -> String {
    let Some(detail) = model.detail() else { return String::new() };
    let total = match &model.page().list {
        List::Stacks(Some(key)) => {
            let function = detail.functions.0.iter().find(|of| of.is(key));
            function.map(|of| of.total_of(detail))
        }
        List::Frames(frames) => {
            rows::find(&detail.profile, frames).map(|index| detail.of_stack(index))
        }
        _ => Some(detail.total()),
    };
    let Some(total) = total else { return ", no sample of it is left".to_owned() };
    let is_whole = matches!(&model.page().list, List::Functions | List::Stacks(None));
    let (value, error) = match detail.exact().filter(|_| is_whole) {
        // A counted number has no error.
        Some(exact) => (exact, String::new()),
        None => (total.value, with_error(String::new(), &total)),
    };
    let value = human_bytes(value);
    let text = match (detail.requested.kind, detail.seconds) {
        (Kind::Alloc, Some(seconds)) => format!(", {value}/s{error} in the last {seconds:.1} s"),
        (Kind::Alloc, None) => format!(", {value}{error} since attach"),
        (Kind::Peak, _) => format!(", {value}{error} held when most was"),
        (_, _) => format!(", {value}{error} held"),
    };
    let note = detail.note.as_ref().map(|why| format!(" ({})", shown(why)));
    text + &note.unwrap_or_default()
}
