//! The cost of profiling in the json format.

use crate::cost::{Range, Report};
use serde::{Deserialize, Serialize};

/// The cost in the form that the json format has under `cost`.
pub fn cost(of: &Report) -> impl Serialize + use<> {
    CostObject::from(of)
}

#[derive(Serialize, Deserialize)]
pub(super) struct CostObject {
    spent_ns: Option<Range>,
    processor_ns: Option<Range>,
    /// Computed from the two fields before, so it is not read back.
    #[serde(skip_deserializing)]
    share: Option<Range>,
    daemon_ns: u64,
    unpriced: u64,
    why: Option<String>,
}

impl From<&Report> for CostObject {
    fn from(of: &Report) -> CostObject {
        CostObject {
            spent_ns: of.spent_ns,
            processor_ns: of.processor_ns,
            share: of.share(),
            daemon_ns: of.daemon_ns,
            unpriced: of.unpriced,
            why: Some(of.why.clone()).filter(|why| !why.is_empty()),
        }
    }
}

impl CostObject {
    /// Converts the object back to a report.
    ///
    /// # Errors
    /// If a number makes no sense.
    pub(super) fn report(self) -> Result<Report, String> {
        Ok(Report {
            spent_ns: Range::checked("spent_ns", self.spent_ns)?,
            processor_ns: Range::checked("processor_ns", self.processor_ns)?,
            daemon_ns: self.daemon_ns,
            unpriced: self.unpriced,
            why: self.why.unwrap_or_default(),
        })
    }
}
