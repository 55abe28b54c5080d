//! Progress of a benchmark: a bar with the remaining time on standard error. Nothing is printed if
//! that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::time::Duration;

const BAR: &str = "{msg} {wide_bar} {pos} of {len}, about {eta} left";
/// How often the remaining time is printed.
const TICK: Duration = Duration::from_secs(1);

/// A bar, erased when this value is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar for `runs` runs of about the same length.
    pub fn of(what: &'static str, runs: usize) -> Progress {
        let style = ProgressStyle::with_template(BAR);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // The bar hides itself if standard error is no terminal.
        let bar = ProgressBar::new(runs as u64).with_style(style).with_message(what);
        bar.enable_steady_tick(TICK);
        Progress(bar)
    }

    /// Counts one run as done.
    pub fn done(&self) {
        self.0.inc(1);
    }

    /// Prints a line that stays, whatever standard error is.
    pub fn say(&self, line: impl Display) {
        self.0.suspend(|| eprintln!("{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
