//! Styles, with and without colors.

use ratatui::style::{Color, Modifier, Style};

/// Styles.
#[derive(Clone, Copy, Debug)]
pub(in crate::top) struct Theme {
    /// Whether colors are used. Without colors (`NO_COLOR`) only bold, dim and reversed are used.
    pub(in crate::top) color: bool,
}

impl Theme {
    fn colored(self, with: Style, without: Modifier) -> Style {
        if self.color { with } else { Style::new().add_modifier(without) }
    }

    /// The style of headings.
    pub(super) fn heads(self) -> Style {
        self.colored(Style::new().fg(Color::Black).bg(Color::Green), Modifier::REVERSED)
    }

    /// The style of the heading of the column that the list is sorted by.
    pub(super) fn sorted(self) -> Style {
        let with = Style::new().fg(Color::Black).bg(Color::Cyan);
        self.colored(with, Modifier::REVERSED.union(Modifier::BOLD))
    }

    /// The style of the marked line.
    pub(super) fn marked(self) -> Style {
        self.colored(Style::new().fg(Color::Black).bg(Color::Cyan), Modifier::REVERSED)
    }

    /// The style of the text after a key's name.
    pub(super) fn label(self) -> Style {
        self.marked()
    }

    /// The style of texts beside numbers.
    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The style of the page's subject.
    pub(super) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of histories.
    pub(super) fn history(self) -> Style {
        self.colored(Style::new().fg(Color::Green), Modifier::empty())
    }

    /// The style of warnings.
    pub(super) fn warning(self) -> Style {
        let with = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        self.colored(with, Modifier::BOLD)
    }

    /// The style of a frozen screen.
    pub(super) fn frozen(self) -> Style {
        let with = Style::new().fg(Color::Black).bg(Color::Yellow);
        self.colored(with, Modifier::REVERSED)
    }
}
