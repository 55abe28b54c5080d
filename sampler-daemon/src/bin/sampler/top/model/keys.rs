//! The effect of keys. The keys are those of htop, if htop has a similar function.

use super::{Item, List, Model, Opened, Over, Page, Prompt, WINDOWS};
use crate::top::columns::Column;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sampler_common::profile::Kind;

/// What happens after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::top) enum Outcome {
    /// The program goes on.
    Stay,
    /// The program ends.
    Quit,
    /// The process is suspended until the shell continues it.
    Suspend,
}

/// Maximum number of characters in a prompt.
const LONGEST_TEXT: usize = 60;

impl Model {
    /// Handles a key.
    pub(in crate::top) fn key(&mut self, key: KeyEvent) -> Outcome {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Outcome::Quit,
                KeyCode::Char('z') => return Outcome::Suspend,
                _ => {}
            }
        }
        if key.code == KeyCode::F(10) {
            return Outcome::Quit;
        }
        let outcome = match (self.over, self.prompt) {
            (Some(Over::Help), _) => {
                self.over = None;
                Outcome::Stay
            }
            (Some(Over::Menu(at)), _) => self.in_menu(at, key.code),
            (None, Some(prompt)) => self.in_prompt(prompt, key.code),
            (None, None) => self.in_list(key.code),
        };
        self.settle();
        outcome
    }

    /// Handles a new size of the terminal.
    pub(in crate::top) fn resized(&mut self, size: (u16, u16)) {
        self.size = size;
        self.settle();
    }

    fn in_list(&mut self, key: KeyCode) -> Outcome {
        match key {
            KeyCode::Char('q' | 'Q') => return Outcome::Quit,
            KeyCode::F(1) | KeyCode::Char('h' | '?') => self.over = Some(Over::Help),
            KeyCode::F(3) | KeyCode::Char('/') => {
                self.search.clear();
                self.prompt = Some(Prompt::Search);
            }
            KeyCode::F(4) | KeyCode::Char('\\') => self.prompt = Some(Prompt::Filter),
            KeyCode::F(5) | KeyCode::Char('t') => self.other_list(),
            KeyCode::F(6) | KeyCode::Char('>' | '<') => self.open_menu(),
            KeyCode::Char('I') => {
                let page = self.page_mut();
                page.reversed = !page.reversed;
            }
            KeyCode::Char('n') => self.find(1),
            KeyCode::Char(' ' | 'z' | 'Z') => self.frozen = !self.frozen,
            KeyCode::Char('a') => self.show(Kind::Alloc),
            KeyCode::Char('l') => self.show(Kind::Live),
            KeyCode::Char('p') => self.show(Kind::Peak),
            KeyCode::Tab => self.show(next(self.kind)),
            KeyCode::BackTab => self.show(next(next(self.kind))),
            KeyCode::Char('w') => {
                self.window = (self.window + 1) % WINDOWS.len();
                self.requested_at = self.now;
            }
            KeyCode::Enter => self.open(),
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            key => self.go(key),
        }
        Outcome::Stay
    }

    /// Moves the mark.
    fn go(&mut self, key: KeyCode) {
        let height = self.height().max(1) as isize;
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.mark_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.mark_by(1),
            KeyCode::PageUp => self.mark_by(-height),
            KeyCode::PageDown => self.mark_by(height),
            KeyCode::Home | KeyCode::Char('g') => self.mark(0),
            KeyCode::End | KeyCode::Char('G') => self.mark(usize::MAX),
            _ => {}
        }
    }

    fn mark_by(&mut self, lines: isize) {
        self.mark(self.page().cursor.at.saturating_add_signed(lines));
    }

    fn mark(&mut self, at: usize) {
        let lines = self.lines();
        let at = at.min(lines.len().saturating_sub(1));
        let item = lines.get(at).and_then(|line| self.item(*line));
        let cursor = &mut self.page_mut().cursor;
        cursor.at = at;
        // At the top no item is kept, so that the mark stays on the first line, whichever item that
        // is.
        cursor.item = item.filter(|_| at > 0);
    }

    /// Keeps the mark on its item.
    pub(super) fn settle(&mut self) {
        let lines = self.lines();
        let height = self.height();
        let mut cursor = self.page().cursor.clone();
        cursor.settle(lines.len(), height, |item: &Item| {
            lines.iter().position(|line| self.is_item(*line, item))
        });
        self.page_mut().cursor = cursor;
    }

    fn open(&mut self) {
        let lines = self.lines();
        let Some(line) = lines.get(self.page().cursor.at).copied() else { return };
        let list = match (self.page().list.clone(), self.item(line)) {
            (List::Processes, _) => {
                let Some(of) = self.processes().get(line) else { return };
                let opened = Opened {
                    pid: of.pid,
                    name: of.name.clone(),
                    attached_unix_ns: of.attached_unix_ns,
                };
                self.opened = Some(opened);
                self.requested_at = self.now;
                List::Functions
            }
            (List::Functions, Some(Item::Function(key))) => List::Stacks(Some(key)),
            (List::Stacks(_), Some(Item::Stack(key))) => List::Frames(key),
            _ => return,
        };
        // When the user comes back, the opened item is marked.
        let item = self.item(line);
        self.page_mut().cursor.item = item;
        self.pages.push(Page::of(list));
    }

    fn back(&mut self) {
        if !self.page().filter.is_empty() {
            self.page_mut().filter.clear();
        } else if self.pages.len() > 1 {
            self.pages.pop();
            if self.page().list == List::Processes {
                self.opened = None;
            }
        }
    }

    /// Switches between functions and stacks.
    fn other_list(&mut self) {
        let list = match self.page().list {
            List::Functions => List::Stacks(None),
            List::Stacks(None) => List::Functions,
            _ => return,
        };
        *self.page_mut() = Page::of(list);
    }

    fn show(&mut self, kind: Kind) {
        self.kind = kind;
        self.requested_at = self.now;
    }

    /// Returns the columns that the page can be sorted by.
    pub(in crate::top) fn choices(&self) -> Vec<Column> {
        let columns = self.page().specs().iter().map(|spec| spec.column);
        columns.filter(|column| column.in_menu(false).is_some()).collect()
    }

    fn open_menu(&mut self) {
        let sorted = self.sorted();
        let choices = self.choices();
        if !choices.is_empty() {
            let at = choices.iter().position(|column| *column == sorted).unwrap_or(0);
            self.over = Some(Over::Menu(at));
        }
    }

    fn in_menu(&mut self, at: usize, key: KeyCode) -> Outcome {
        let choices = self.choices();
        let last = choices.len().saturating_sub(1);
        let at = match key {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Enter => {
                let page = self.page_mut();
                (page.sorted, page.reversed) = (choices.get(at).copied(), false);
                page.cursor = Default::default();
                self.over = None;
                return Outcome::Stay;
            }
            KeyCode::Esc | KeyCode::Char('q') | KeyCode::F(6) => {
                self.over = None;
                return Outcome::Stay;
            }
            _ => at,
        };
        self.over = Some(Over::Menu(at));
        Outcome::Stay
    }

    fn in_prompt(&mut self, prompt: Prompt, key: KeyCode) -> Outcome {
        match key {
            KeyCode::Enter => self.prompt = None,
            KeyCode::Esc => {
                self.prompt = None;
                if prompt == Prompt::Filter {
                    self.page_mut().filter.clear();
                }
            }
            KeyCode::F(3) if prompt == Prompt::Search => self.find(1),
            KeyCode::Backspace => {
                self.typed(prompt).pop();
            }
            KeyCode::Char(c) if self.typed(prompt).chars().count() < LONGEST_TEXT => {
                self.typed(prompt).push(c);
                if prompt == Prompt::Search {
                    self.find(0);
                }
            }
            KeyCode::Char(_) => {}
            key => self.go(key),
        }
        Outcome::Stay
    }

    fn typed(&mut self, prompt: Prompt) -> &mut String {
        match prompt {
            Prompt::Search => &mut self.search,
            Prompt::Filter => &mut self.page_mut().filter,
        }
    }

    /// Marks the next line that contains the searched text, starting `ahead` lines after the mark.
    fn find(&mut self, ahead: usize) {
        let lines = self.lines();
        let wanted = self.search.to_lowercase();
        if wanted.is_empty() || lines.is_empty() {
            return;
        }
        let from = self.page().cursor.at + ahead;
        let mut places = (from..from + lines.len()).map(|at| at % lines.len());
        let found = places.find(|at| self.text_of(self.page(), lines[*at]).contains(&wanted));
        if let Some(at) = found {
            self.mark(at);
        }
    }
}

/// Returns the next kind: alloc, live, peak, and alloc again.
fn next(kind: Kind) -> Kind {
    match kind {
        Kind::Alloc => Kind::Live,
        Kind::Live => Kind::Peak,
        Kind::Peak | Kind::Mapped => Kind::Alloc,
    }
}
