//! How things look, with and without colours.

use ratatui::style::{Color, Modifier, Style};

/// Styles.
#[derive(Clone, Copy, Debug)]
pub(in crate::top) struct Theme {
    /// Without them only bold, dim and reversed are used (`NO_COLOR`).
    pub(in crate::top) color: bool,
}

impl Theme {
    fn colored(self, with: Style, without: Modifier) -> Style {
        if self.color { with } else { Style::new().add_modifier(without) }
    }

    /// Names of columns.
    pub(super) fn heads(self) -> Style {
        self.colored(Style::new().fg(Color::Black).bg(Color::Green), Modifier::REVERSED)
    }

    /// The column that the list is sorted by, among them.
    pub(super) fn sorted(self) -> Style {
        let with = Style::new().fg(Color::Black).bg(Color::Cyan);
        self.colored(with, Modifier::REVERSED.union(Modifier::BOLD))
    }

    /// The marked line.
    pub(super) fn marked(self) -> Style {
        self.colored(Style::new().fg(Color::Black).bg(Color::Cyan), Modifier::REVERSED)
    }

    /// What keys do, beside them.
    pub(super) fn label(self) -> Style {
        self.marked()
    }

    /// What stands beside numbers.
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What the page is about.
    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// How numbers went.
    pub(super) fn history(self) -> Style {
        self.colored(Style::new().fg(Color::Green), Modifier::empty())
    }

    /// What somebody ought to read.
    pub(super) fn warning(self) -> Style {
        let with = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        self.colored(with, Modifier::BOLD)
    }

    /// What stands still.
    pub(super) fn frozen(self) -> Style {
        let with = Style::new().fg(Color::Black).bg(Color::Yellow);
        self.colored(with, Modifier::REVERSED)
    }
}
