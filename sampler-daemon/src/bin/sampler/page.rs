//! What the terminal can show.

use std::io::IsTerminal;
use terminal_size::{Height, Width};

/// Columns where neither a terminal nor `COLUMNS` says how many.
const DEFAULT_WIDTH: usize = 80;

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns: `COLUMNS`, else the terminal's (behind `| less` too, since standard error still is one).
pub(crate) fn width() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal =
        || terminal_size::terminal_size().map(|(Width(columns), _)| usize::from(columns));
    given.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(DEFAULT_WIDTH)
}

/// Lines of the terminal.
pub(crate) fn height() -> Option<usize> {
    terminal_size::terminal_size().map(|(_, Height(lines))| usize::from(lines))
}

/// Whether to emphasize on standard output, see [`color_on`].
pub(crate) fn color() -> bool {
    color_on(&std::io::stdout())
}

/// Whether to emphasize: on a terminal that can, unless `NO_COLOR` is set (<https://no-color.org>).
pub(crate) fn color_on(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    can_redraw(stream) && !unwanted
}

/// Whether a line can be written over: a terminal that can move its cursor.
pub(crate) fn can_redraw(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}
