//! `/metrics`: the numbers of `status` and `ps`, in the text format of Prometheus.
//!
//! Reference: "Exposition formats" and "Metric and label naming" of the Prometheus documentation.
//! Counters only grow: a cost that would fall keeps its last shown value. Labels are few: only the
//! costliest processes have their own series, all other processes are summed.

mod daemon;
mod exports;
mod ledger;
mod page;
mod processes;

use super::answer::Problem;
use crate::export::Exports;
use crate::pipeline::Profiler;
pub(super) use daemon::LOSSES;
use ledger::Ledger;
use page::Page;
use tokio::sync::Mutex;

/// Makes the page.
pub(super) struct Metrics {
    profiler: Profiler,
    exports: Exports,
    /// The numbers that were shown. The lock is held while a page is made, so pages are made one at
    /// a time.
    ledger: Mutex<Ledger>,
}

impl Metrics {
    pub(super) fn new(profiler: Profiler, exports: Exports) -> Metrics {
        Metrics { profiler, exports, ledger: Mutex::new(Ledger::default()) }
    }

    pub(super) async fn page(&self) -> Result<String, Problem> {
        let mut ledger = self.ledger.lock().await;
        let report = self.profiler.metrics().await?.map_err(Problem::broken)?;
        let accounts = ledger.enter(&report);
        let mut page = Page::default();
        daemon::write(&report, &mut page);
        processes::write(&report, &accounts, &mut page);
        exports::write(&self.exports, &mut page);
        Ok(page.finish())
    }
}
