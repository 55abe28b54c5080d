//! The cost of profiling in the json format.

use crate::cost::{Range, Report};
use serde::{Deserialize, Serialize};

/// The cost in the form that the json format has under `cost`.
pub fn cost(of: &Report) -> impl Serialize + use<> {
    CostObject::from(of)
}

/// A figure with its interval.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct RangeObject {
    value: f64,
    low: f64,
    high: f64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct CostObject {
    spent_ns: Option<RangeObject>,
    processor_ns: Option<RangeObject>,
    /// Computed from the two fields before, so it is not read back.
    #[serde(skip_deserializing)]
    share: Option<RangeObject>,
    daemon_ns: u64,
    unpriced: u64,
    why: Option<String>,
}

impl From<Range> for RangeObject {
    fn from(Range { value, low, high }: Range) -> RangeObject {
        RangeObject { value, low, high }
    }
}

impl From<&Report> for CostObject {
    fn from(of: &Report) -> CostObject {
        CostObject {
            spent_ns: of.spent_ns.map(RangeObject::from),
            processor_ns: of.processor_ns.map(RangeObject::from),
            share: of.share().map(RangeObject::from),
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
        let range = |name: &str, of: Option<RangeObject>| {
            let Some(RangeObject { value, low, high }) = of else { return Ok(None) };
            Range::checked(value, low, high).map(Some).map_err(|error| format!("{name}: {error}"))
        };
        Ok(Report {
            spent_ns: range("spent_ns", self.spent_ns)?,
            processor_ns: range("processor_ns", self.processor_ns)?,
            daemon_ns: self.daemon_ns,
            unpriced: self.unpriced,
            why: self.why.unwrap_or_default(),
        })
    }
}
