//! The state of the screen: the data, the shown page, and the effect of keys. Pure: its caller
//! passes time and answers.

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

/// Lines of the screen outside the list: three for the head, one each for the title, the headings
/// and the keys.
pub(super) const OTHER_LINES: usize = 6;
/// Maximum number of functions whose history is kept.
const MAX_HISTORIES: usize = 500;

/// Windows for the allocations of a process. The last one is everything since the attach.
const WINDOWS: [Option<Duration>; 4] = [
    Some(Duration::from_secs(10)),
    Some(Duration::from_secs(60)),
    Some(Duration::from_secs(600)),
    None,
];

/// What samplerd is to be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Question {
    /// The request for the open process.
    pub(super) process: Option<DetailRequest>,
    /// Whether nothing is asked again before something changes.
    pub(super) frozen: bool,
}

/// samplerd's answer, or why there is none.
#[derive(Debug)]
pub(super) enum Answer {
    /// All processes at one time.
    Snapshot(Box<Snapshot>),
    /// The profile of the open process.
    Detail(Box<Detail>),
    /// Why the requested profile is refused.
    Refused(DetailRequest, String),
    /// Why samplerd cannot be reached.
    Lost(String),
}

/// A process that the user has opened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Opened {
    pub(super) pid: u32,
    pub(super) name: String,
    attached_unix_ns: u64,
}

/// The purpose of the text that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Search,
    Filter,
}

/// A window over the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Help,
    /// The menu of columns to sort by. The number is the marked column.
    Menu(usize),
}

/// The state.
#[derive(Debug)]
pub(super) struct Model {
    /// Columns and lines of the terminal.
    pub(super) size: (u16, u16),
    /// Time since the start.
    pub(super) now: Duration,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) rates: Rates,
    pub(super) detail: Option<Detail>,
    /// A refused request, and why it was refused.
    pub(super) refused: Option<(DetailRequest, String)>,
    /// Since when samplerd cannot be reached, and why.
    pub(super) lost: Option<(Duration, String)>,
    /// The time of the last change of the requested profile.
    pub(super) requested_at: Duration,
    pub(super) opened: Option<Opened>,
    pub(super) kind: Kind,
    window: usize,
    /// The pages from the first to the shown one; never empty.
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
            snapshot: None,
            rates: Rates::default(),
            detail: None,
            refused: None,
            lost: None,
            requested_at: Duration::ZERO,
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

    /// Returns the shown page.
    pub(super) fn page(&self) -> &Page {
        &self.pages[self.pages.len() - 1]
    }

    fn page_mut(&mut self) -> &mut Page {
        let last = self.pages.len() - 1;
        &mut self.pages[last]
    }

    /// Returns what samplerd is to be asked for the shown page.
    pub(super) fn question(&self) -> Question {
        let process = self.opened.as_ref().map(|of| DetailRequest {
            pid: of.pid,
            attached_unix_ns: of.attached_unix_ns,
            kind: self.kind,
            window: self.window(),
        });
        Question { process, frozen: self.frozen }
    }

    /// Returns the length of the window; `None`: since the attach.
    pub(super) fn window(&self) -> Option<Duration> {
        WINDOWS[self.window].filter(|_| self.kind == Kind::Alloc)
    }

    /// Returns the profile for the shown page, if it has arrived.
    pub(super) fn detail(&self) -> Option<&Detail> {
        let requested = self.question().process;
        self.detail.as_ref().filter(|of| Some(&of.requested) == requested.as_ref())
    }

    /// Returns why the profile was refused, if it was.
    pub(super) fn refused(&self) -> Option<&str> {
        let requested = self.question().process;
        let refused = self.refused.as_ref().filter(|(of, _)| Some(of) == requested.as_ref());
        refused.map(|(_, why)| why.as_str())
    }

    /// Returns the history of a function of the open process.
    pub(super) fn history_of(&self, name: &str, place: &str) -> Option<&History> {
        self.histories.get(&(name.to_owned(), place.to_owned()))
    }

    /// Returns the number of list lines on the screen.
    pub(super) fn height(&self) -> usize {
        usize::from(self.size.1).saturating_sub(OTHER_LINES)
    }

    /// Handles an answer.
    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Lost(why) => {
                let since = self.lost.take().map_or(self.now, |(since, _)| since);
                self.lost = Some((since, why));
            }
            Answer::Snapshot(snapshot) => {
                self.lost = None;
                if !self.frozen {
                    self.rates.update(self.snapshot.as_ref(), &snapshot);
                    self.snapshot = Some(*snapshot);
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
            Answer::Refused(requested, why) => {
                self.lost = None;
                self.refused = Some((requested, why));
            }
        }
        self.settle();
    }

    /// Extends the histories of the functions. A different request starts new histories.
    fn note(&mut self, detail: &Detail) {
        let same = self.detail.as_ref().is_some_and(|of| of.requested == detail.requested);
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
