//! The state of the screen: what is known, what is looked at, and what keys do. Pure: time and answers are given to it.

mod cursor;
mod keys;
mod lines;
mod page;
mod rates;
#[cfg(test)]
pub(super) mod tests;

pub(super) use keys::Outcome;
pub(super) use page::{Item, List, Page};

use super::data::{Detail, DetailRequest, Snapshot};
use super::history::History;
use rates::Rates;
use sampler_common::profile::Kind;
use std::collections::HashMap;
use std::time::Duration;

/// Lines of the screen that are not the list: three of the head, a title, the names of columns, the keys.
pub(super) const OTHER_LINES: usize = 6;
/// Functions whose history is kept.
const MAX_HISTORIES: usize = 500;

/// How far back allocations of a process are looked at; the last is since attach.
const WINDOWS: [Option<Duration>; 4] = [
    Some(Duration::from_secs(10)),
    Some(Duration::from_secs(60)),
    Some(Duration::from_secs(600)),
    None,
];

/// What samplerd is to be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Question {
    /// Of the process that is open.
    pub(super) process: Option<DetailRequest>,
    /// Nothing again before something changes.
    pub(super) frozen: bool,
}

/// What samplerd said, or why it says nothing.
#[derive(Debug)]
pub(super) enum Answer {
    /// Everything at one moment.
    Snapshot(Box<Snapshot>),
    /// The profile of the process that is open.
    Detail(Box<Detail>),
    /// Why there is none.
    Refused(DetailRequest, String),
    /// There is nobody to ask.
    Lost(String),
}

/// A process that was opened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Opened {
    pub(super) pid: u32,
    pub(super) name: String,
    attached_unix_ns: u64,
}

/// What is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Search,
    Filter,
}

/// What lies over the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Help,
    /// The columns to sort by, and which of them is marked.
    Menu(usize),
}

/// The state.
#[derive(Debug)]
pub(super) struct Model {
    /// Columns and lines of the terminal.
    pub(super) size: (u16, u16),
    /// Time since the start.
    pub(super) now: Duration,
    pub(super) look: Option<Snapshot>,
    pub(super) rates: Rates,
    pub(super) detail: Option<Detail>,
    /// Why there is no profile of what was asked.
    pub(super) refused: Option<(DetailRequest, String)>,
    /// Since when there is nobody to ask, and why.
    pub(super) lost: Option<(Duration, String)>,
    /// When the profile that is shown was asked for.
    pub(super) asked_at: Duration,
    pub(super) opened: Option<Opened>,
    pub(super) kind: Kind,
    window: usize,
    /// The way to what is shown; never empty.
    pages: Vec<Page>,
    pub(super) prompt: Option<Prompt>,
    pub(super) search: String,
    pub(super) over: Option<Over>,
    pub(super) frozen: bool,
    histories: HashMap<(String, String), History>,
}

impl Model {
    pub(super) fn new(kind: Kind, size: (u16, u16)) -> Model {
        Model {
            size,
            now: Duration::ZERO,
            look: None,
            rates: Rates::default(),
            detail: None,
            refused: None,
            lost: None,
            asked_at: Duration::ZERO,
            opened: None,
            kind,
            window: 0,
            pages: vec![Page::of(List::Processes)],
            prompt: None,
            search: String::new(),
            over: None,
            frozen: false,
            histories: HashMap::new(),
        }
    }

    /// The page that is shown.
    pub(super) fn page(&self) -> &Page {
        &self.pages[self.pages.len() - 1]
    }

    fn page_mut(&mut self) -> &mut Page {
        let last = self.pages.len() - 1;
        &mut self.pages[last]
    }

    /// What is to be asked for what is shown.
    pub(super) fn question(&self) -> Question {
        let process = self.opened.as_ref().map(|of| DetailRequest {
            pid: of.pid,
            attached_unix_ns: of.attached_unix_ns,
            kind: self.kind,
            window: self.window(),
        });
        Question { process, frozen: self.frozen }
    }

    /// How far back one looks; `None`: since attach.
    pub(super) fn window(&self) -> Option<Duration> {
        WINDOWS[self.window].filter(|_| self.kind == Kind::Alloc)
    }

    /// The profile of what is looked at, if it is there.
    pub(super) fn detail(&self) -> Option<&Detail> {
        let asked = self.question().process;
        self.detail.as_ref().filter(|of| Some(&of.asked) == asked.as_ref())
    }

    /// Why there is none.
    pub(super) fn refused(&self) -> Option<&str> {
        let asked = self.question().process;
        let refused = self.refused.as_ref().filter(|(of, _)| Some(of) == asked.as_ref());
        refused.map(|(_, why)| why.as_str())
    }

    /// The history of a function of the process that is open.
    pub(super) fn history_of(&self, name: &str, place: &str) -> Option<&History> {
        self.histories.get(&(name.to_owned(), place.to_owned()))
    }

    /// Lines of the list on the screen.
    pub(super) fn height(&self) -> usize {
        usize::from(self.size.1).saturating_sub(OTHER_LINES)
    }

    /// Takes in what samplerd said.
    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Lost(why) => {
                let since = self.lost.take().map_or(self.now, |(since, _)| since);
                self.lost = Some((since, why));
            }
            Answer::Snapshot(look) => {
                self.lost = None;
                if !self.frozen {
                    self.rates.look(self.look.as_ref(), &look);
                    self.look = Some(*look);
                }
            }
            Answer::Detail(detail) => {
                self.lost = None;
                if !(self.frozen && self.detail().is_some()) {
                    self.note(&detail);
                    self.detail = Some(*detail);
                    self.refused = None;
                }
            }
            Answer::Refused(asked, why) => {
                self.lost = None;
                self.refused = Some((asked, why));
            }
        }
        self.settle();
    }

    /// Histories of the functions, as long as the same is looked at.
    fn note(&mut self, detail: &Detail) {
        let same = self.detail.as_ref().is_some_and(|of| of.asked == detail.asked);
        let mut before = if same { std::mem::take(&mut self.histories) } else { HashMap::new() };
        self.histories = HashMap::new();
        for function in detail.functions.0.iter().take(MAX_HISTORIES) {
            let key = (function.name.clone(), function.place.clone());
            let mut history = before.remove(&key).unwrap_or_default();
            history.push(function.total / detail.seconds.unwrap_or(1.0));
            self.histories.insert(key, history);
        }
    }
}
