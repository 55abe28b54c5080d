//! The cost of profiling in words, for the processes that pay most.

use crate::connect::Address;
use crate::status::cost;
use anyhow::Result;
use sampler_common::encode::name::shown;
use sampler_daemon::rpc::v1::Process;
use std::cmp::Reverse;

/// Maximum number of processes that are listed.
const MAX_LISTED_PROCESSES: usize = 3;

/// Returns one line for each listed process.
pub(super) fn costs<'a>(
    address: &Address,
    processes: impl Iterator<Item = &'a Process>,
) -> Result<Vec<String>> {
    let mut costs = Vec::new();
    for process in processes {
        let Some(report) = cost::report(address, process.cost.as_ref())? else { continue };
        if let Some(spent) = report.spent_ns.filter(|spent| spent.value > 0.0) {
            let whom = match process.exited_count {
                0 => format!("{} {}", process.comm, process.pid),
                exited_count => format!("{} × {exited_count}", process.comm),
            };
            costs.push((Reverse(spent.value as u64), format!("{whom}: {}", report.text())));
        }
    }
    costs.sort();
    Ok(costs
        .into_iter()
        .take(MAX_LISTED_PROCESSES)
        .map(|(_, text)| shown(&text).into_owned())
        .collect())
}
