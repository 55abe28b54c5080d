//! The text of one column of one line.

use crate::top::columns::Column;
use crate::top::data::{Detail, Process};
use crate::top::model::Model;
use crate::top::rows::{self, Function};
use sampler_common::cost::{percent, plus_minus as cost_error};
use sampler_common::encode::text::layout::{columns, end, left, middle, right};
use sampler_common::encode::text::samples;
use sampler_common::encode::text::short::short;
use sampler_common::estimate::{Estimate, plus_minus};
use sampler_common::units::{human_bytes, human_count, share, short_bytes};

/// The text for an unknown number.
const UNKNOWN: &str = "-";

/// Formats an error: `±5%`.
pub(super) fn error(of: &Estimate) -> String {
    plus_minus(of)
}

/// Aligns texts left and numbers right.
pub(super) fn aligned(text: &str, column: Column, width: usize) -> String {
    if column.is_text() { left(text, width) } else { right(text, width) }
}

/// Formats a column of a process.
pub(super) fn process(model: &Model, of: &Process, column: Column, width: usize) -> String {
    let course = model.rates.of(of.pid);
    let rate = course.and_then(|of| of.rate);
    let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    match column {
        Column::Pid => of.pid.to_string(),
        Column::Rate => known(rate.map(|of| human_bytes(of.bytes))),
        Column::ObjectRate => known(rate.map(|of| human_count(of.objects))),
        Column::History => course.map_or(String::new(), |of| {
            let history = match model.sorted() {
                Column::Held | Column::Objects => &of.held,
                _ => &of.allocated,
            };
            history.bars(width)
        }),
        Column::Held => known(of.held.map(|of| human_bytes(of.bytes.value))),
        Column::HeldError => of.held.map_or(String::new(), |of| error(&of.bytes)),
        Column::Objects => known(of.held.map(|of| human_count(of.objects.value))),
        Column::ObjectsError => of.held.map_or(String::new(), |of| error(&of.objects)),
        Column::Allocated => known(of.exact.map(|of| human_bytes(of.alloc_space as f64))),
        Column::Cost => known(of.cost.map(|of| percent(of.value))),
        Column::CostError => of.cost.map_or(String::new(), |of| cost_error(&of).trim().to_owned()),
        Column::Resident => known(of.resident.map(|bytes| human_bytes(bytes as f64))),
        Column::Samples => samples(of.samples),
        Column::Interval => short_bytes(of.interval_bytes),
        Column::Name => middle(&of.name, width),
        _ => String::new(),
    }
}

/// Numbers of a function, computed once for all columns.
pub(super) struct Numbers {
    own: Option<Estimate>,
    total: Estimate,
}

impl Numbers {
    pub(super) fn of(function: &Function, detail: &Detail) -> Numbers {
        Numbers { own: function.own_of(detail), total: function.total_of(detail) }
    }
}

/// Formats a column of a function.
pub(super) fn function(
    model: &Model,
    detail: &Detail,
    of: &Function,
    Numbers { own, total }: &Numbers,
    column: Column,
    width: usize,
) -> String {
    match column {
        Column::Own => own.map(|of| human_bytes(of.value)).unwrap_or_default(),
        Column::OwnError => own.as_ref().map(error).unwrap_or_default(),
        Column::OwnShare => own.map(|of| share(of.value, detail.total().value)).unwrap_or_default(),
        Column::Total => human_bytes(total.value),
        Column::TotalError => error(total),
        Column::Samples => samples(total.samples),
        Column::History => {
            model.history_of(&of.name, &of.place).map_or(String::new(), |of| of.bars(width))
        }
        Column::Name => short(&of.name, width).into_owned(),
        Column::Place => end(&of.place, width),
        _ => String::new(),
    }
}

/// Formats a column of a stack.
pub(super) fn stack(detail: &Detail, index: usize, column: Column, width: usize) -> String {
    let space = detail.of_stack(index);
    match column {
        Column::Total => human_bytes(space.value),
        Column::TotalError => error(&space),
        Column::Share => share(space.value, detail.total().value),
        Column::Samples => samples(space.samples),
        Column::Name => head(&rows::title(&detail.profile, index), width),
        _ => String::new(),
    }
}

/// Cuts a chain of callers at its end, because its beginning matters most.
fn head(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if columns(&out) + columns(c.encode_utf8(&mut [0; 4])) + 1 > width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}
