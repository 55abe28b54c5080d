//! The abilities of the terminal.

use std::io::IsTerminal;
use terminal_size::{Height, Width};

/// Width if neither a terminal nor `COLUMNS` gives one.
const DEFAULT_WIDTH: usize = 80;

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Returns the width: that of `COLUMNS`, else that of the terminal. Behind `| less` standard error
/// is still a terminal.
pub(crate) fn width() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal =
        || terminal_size::terminal_size().map(|(Width(columns), _)| usize::from(columns));
    given.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH)
}

/// Returns the number of lines of the terminal.
pub(crate) fn height() -> Option<usize> {
    terminal_size::terminal_size().map(|(_, Height(lines))| usize::from(lines))
}

/// Whether text on standard output is emphasized, see [`color_on`].
pub(crate) fn color() -> bool {
    color_on(&std::io::stdout())
}

/// Whether text on `stream` is emphasized: on a capable terminal, unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub(crate) fn color_on(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    can_redraw(stream) && !unwanted
}

/// Whether a line can be overwritten: on a terminal that can move its cursor.
pub(crate) fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}
