//! The lines of the page and their order.

use super::{Item, List, Model, Page};
use crate::top::columns::Column;
use crate::top::data::{Detail, Process};
use crate::top::rows::{self, Function};
use sampler_common::profile::Kind;
use std::cmp::Ordering;

impl Model {
    /// Returns the lines of the page as indices of processes, functions, stacks or frames.
    pub(in crate::top) fn lines(&self) -> Vec<usize> {
        let page = self.page();
        let mut lines: Vec<usize> = match &page.list {
            List::Frames(frames) => return (0..self.frame_lines(frames).len()).collect(),
            List::Processes => (0..self.processes().len()).collect(),
            List::Functions => (0..self.detail().map_or(0, |of| of.functions.0.len())).collect(),
            List::Stacks(through) => self.stacks_through(through.as_ref()),
        };
        if !page.filter.is_empty() {
            let wanted = page.filter.to_lowercase();
            lines.retain(|line| self.text_of(page, *line).contains(&wanted));
        }
        let sorted = self.sorted();
        // The sort is stable: equal lines keep samplerd's order.
        lines.sort_by(|a, b| self.compared(page, sorted, *a, *b));
        if page.reversed {
            lines.reverse();
        }
        lines
    }

    /// Returns the column that the page is sorted by.
    pub(in crate::top) fn sorted(&self) -> Column {
        let page = self.page();
        page.sorted.unwrap_or(match (&page.list, self.kind) {
            (List::Processes, Kind::Alloc) => Column::Rate,
            (List::Processes, _) => Column::Held,
            (List::Functions, _) => Column::Own,
            _ => Column::Total,
        })
    }

    pub(in crate::top) fn processes(&self) -> &[Process] {
        self.snapshot.as_ref().map_or(&[], |snapshot| &snapshot.processes)
    }

    /// Returns the open stack as lines.
    pub(in crate::top) fn frame_lines(&self, frames: &rows::Key) -> Vec<String> {
        rows::frame_lines(frames, usize::from(self.size.0))
    }

    fn stacks_through(&self, function: Option<&rows::Key>) -> Vec<usize> {
        let Some(detail) = self.detail() else { return Vec::new() };
        let Some(function) = function else { return (0..detail.profile.stacks.len()).collect() };
        let found = detail.functions.0.iter().find(|of| of.is(function));
        found.map_or(Vec::new(), |of| of.stacks.clone())
    }

    /// Returns the item of a line.
    pub(super) fn item(&self, line: usize) -> Option<Item> {
        match self.page().list {
            List::Processes => Some(Item::Process(self.processes().get(line)?.pid)),
            List::Functions => Some(Item::Function(self.detail()?.functions.0.get(line)?.key())),
            List::Stacks(_) => Some(Item::Stack(rows::frames(&self.detail()?.profile, line))),
            List::Frames(_) => None,
        }
    }

    /// Whether `item` is the item of a line.
    pub(super) fn is_item(&self, line: usize, item: &Item) -> bool {
        match (item, self.detail()) {
            (Item::Process(pid), _) => self.processes().get(line).is_some_and(|of| of.pid == *pid),
            (Item::Function(key), Some(of)) => {
                of.functions.0.get(line).is_some_and(|of| of.is(key))
            }
            (Item::Stack(frames), Some(of)) => rows::is_of(&of.profile, line, frames),
            (_, None) => false,
        }
    }

    /// Returns the text that filters and searches use, in lower case.
    pub(super) fn text_of(&self, page: &Page, line: usize) -> String {
        let of_stack = |of: &Detail| {
            let frames = rows::frames(&of.profile, line).into_iter();
            frames.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        let text = match &page.list {
            List::Processes => {
                self.processes().get(line).map(|of| format!("{} {}", of.pid, of.name))
            }
            List::Functions => {
                let of = self.detail().and_then(|of| of.functions.0.get(line));
                of.map(|of| format!("{} {}", of.name, of.place))
            }
            List::Stacks(_) => self.detail().map(of_stack),
            List::Frames(frames) => self.frame_lines(frames).into_iter().nth(line),
        };
        text.unwrap_or_default().to_lowercase()
    }

    fn compared(&self, page: &Page, by: Column, a: usize, b: usize) -> Ordering {
        match (&page.list, self.detail()) {
            (List::Processes, _) => {
                let (a, b) = (&self.processes()[a], &self.processes()[b]);
                let first = match by {
                    Column::Pid => a.pid.cmp(&b.pid),
                    Column::Name => a.name.cmp(&b.name),
                    _ => self.number(b, by).total_cmp(&self.number(a, by)),
                };
                first.then(a.pid.cmp(&b.pid))
            }
            (List::Functions, Some(detail)) => {
                let [a, b] = [a, b].map(|line| &detail.functions.0[line]);
                of_function(a, b, by, detail)
            }
            (List::Stacks(_), Some(detail)) if by == Column::Name => {
                let [a, b] = [a, b].map(|line| rows::title(&detail.profile, line));
                a.cmp(&b)
            }
            (List::Stacks(_), Some(detail)) if by == Column::Samples => {
                samples(detail, b).cmp(&samples(detail, a))
            }
            // The profile's order is that of the bytes.
            _ => a.cmp(&b),
        }
    }

    fn number(&self, of: &Process, column: Column) -> f64 {
        // Unknown numbers come last.
        const UNKNOWN: f64 = -1.0;
        let rate = self.rates.of(of.pid).and_then(|of| of.rate);
        let number = match column {
            Column::Rate => rate.map(|of| of.bytes),
            Column::ObjectRate => rate.map(|of| of.objects),
            Column::Held => of.held.map(|of| of.bytes.value),
            Column::Objects => of.held.map(|of| of.objects.value),
            Column::Allocated => of.exact.map(|of| of.alloc_space as f64),
            Column::Cost => of.cost.map(|of| of.value),
            Column::Resident => of.resident.map(|bytes| bytes as f64),
            Column::Samples => Some(of.samples as f64),
            Column::Interval => Some(of.interval_bytes as f64),
            _ => None,
        };
        number.unwrap_or(UNKNOWN)
    }
}

fn of_function(a: &Function, b: &Function, by: Column, detail: &Detail) -> Ordering {
    let own = || b.own.total_cmp(&a.own);
    let total = || b.total.total_cmp(&a.total);
    let first = match by {
        Column::Total => total().then_with(own),
        Column::Name => a.name.cmp(&b.name),
        Column::Place => a.place.cmp(&b.place),
        Column::Samples => {
            let of = |function: &Function| -> u64 {
                function.stacks.iter().map(|index| samples(detail, *index)).sum()
            };
            of(b).cmp(&of(a))
        }
        _ => own().then_with(total),
    };
    first.then_with(|| a.name.cmp(&b.name))
}

/// Returns the number of samples of a stack.
fn samples(detail: &Detail, stack: usize) -> u64 {
    let profile = &detail.profile;
    profile.stacks[stack].quantities.space(profile.kind).estimate.samples
}
