//! A line on standard error while the client waits for a slow answer of samplerd. It is shown only
//! in a terminal. The line shows the elapsed time and no bar, because samplerd does not report its
//! progress.

use crate::page;
use indicatif::{ProgressBar, ProgressStyle};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

/// Answers that come within this time get no line.
const UNNOTICED: Duration = Duration::from_millis(300);
const FRAME: Duration = Duration::from_millis(100);
const LINE: &str = "{spinner} {msg}, {elapsed_precise}";

/// The text of the line while samplerd makes a profile.
pub(crate) const PROFILE: &str = "samplerd makes the profile (the first one reads symbols)";

/// Waits for `answer`. The line shows `what`, the text on what is waited for. It is erased when the
/// answer comes.
pub(crate) async fn waiting<T>(what: &'static str, answer: impl Future<Output = T>) -> T {
    if !page::can_redraw(&std::io::stderr()) {
        return answer.await;
    }
    let mut answer = pin!(answer);
    tokio::select! {
        answer = &mut answer => return answer,
        () = tokio::time::sleep(UNNOTICED) => {}
    }
    let line = Line::show(what);
    let answer = answer.await;
    drop(line);
    answer
}

/// A line that is erased when this value is dropped.
struct Line(ProgressBar);

impl Line {
    fn show(what: &'static str) -> Line {
        let style = ProgressStyle::with_template(LINE);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style).with_elapsed(UNNOTICED);
        bar.set_message(what);
        bar.enable_steady_tick(FRAME);
        Line(bar)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
