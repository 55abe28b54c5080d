//! Converts selectors from the protocol.

use super::v1;
use crate::pipeline::{GroupBy, ListRequest};
use crate::store::{Criterion, Selector};

/// The selector of a request, with the additional pids of the request.
pub(super) fn selector(wire: Option<v1::ProcessSelector>, pids: &[u32]) -> Selector {
    let wire = wire.unwrap_or_default();
    let pids = pids.iter().chain(&wire.pids).map(|pid| Criterion::Pid(*pid));
    let comms = wire.comms.into_iter().map(Criterion::Comm);
    let exes = wire.exes.into_iter().map(Criterion::Exe);
    let cgroups = wire.cgroups.into_iter().map(Criterion::Cgroup);
    Selector { criteria: pids.chain(comms).chain(exes).chain(cgroups).collect() }
}

/// The requested list of processes.
pub(super) fn list(wire: v1::ListProcessesRequest) -> Result<ListRequest, String> {
    let group_by = match wire.group_by.as_str() {
        "" => None,
        name => {
            let known = GroupBy::ALL.iter().find(|(of, _)| *of == name);
            let (_, by) = known.ok_or_else(|| {
                let all = GroupBy::ALL.map(|(name, _)| name).join(", ");
                format!("group by {name:?}: there is no such group (there are {all})")
            })?;
            Some(*by)
        }
    };
    let selector = selector(wire.selector, &[]);
    Ok(ListRequest { selector, group_by, fold_exited: wire.fold_exited })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_of_a_request_are_merged_into_its_selector() {
        let wire = v1::ProcessSelector {
            pids: vec![2],
            comms: vec!["a".into()],
            cgroups: vec!["/b".into()],
            ..Default::default()
        };
        assert_eq!(selector(Some(wire), &[1]).to_string(), "pid:1 pid:2 comm:a cgroup:/b");
        assert!(selector(None, &[]).is_all());
    }
}
