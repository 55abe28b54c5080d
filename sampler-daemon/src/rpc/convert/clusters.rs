//! Conversion of windows to the protocol's form, and back.

use super::from_wire::{Within, check_index};
use super::number::number;
use crate::rpc::v1;
use sampler_common::estimate::{Cluster, Clusters, Reference, Row};
use sampler_common::windows::MAX_GROUPS;

/// The sums of a row in groups of windows.
pub(super) fn row_to_wire(row: &Row) -> Vec<v1::ClusterSum> {
    let sum = |(process, group, [bytes, objects]): (u32, u16, [f64; 2])| v1::ClusterSum {
        process,
        group: u32::from(group),
        bytes,
        objects,
    };
    row.clusters().map(sum).collect()
}

/// The windows of all processes.
pub(super) fn reference_to_wire(reference: &Reference) -> Vec<v1::Clusters> {
    let group = |of: &Cluster| {
        let [bytes, objects] = of.total;
        v1::Cluster { length: of.length, bytes, objects, own_ns: of.own_ns, traps: of.traps }
    };
    let process = |(process, of): (&u32, &Clusters)| v1::Clusters {
        process: *process,
        groups: of.groups.iter().map(group).collect(),
        windows: of.windows,
    };
    reference.clusters.iter().map(process).collect()
}

/// Adds the sums of a row in groups of windows.
pub(super) fn row(
    of: &[v1::ClusterSum],
    reference: &Reference,
    to: &mut Row,
) -> Result<(), String> {
    for sum in of {
        let groups = reference.clusters.get(&sum.process).map_or(0, |of| of.groups.len());
        check_index("group of windows", sum.group, groups)?;
        let sums = [number("bytes", sum.bytes)?, number("objects", sum.objects)?];
        to.add_cluster(sum.process, sum.group as u16, sums);
    }
    Ok(())
}

/// Adds the windows of all processes.
pub(super) fn reference(
    of: Vec<v1::Clusters>,
    processes: usize,
    to: &mut Reference,
) -> Result<(), String> {
    for clusters in of {
        check_index("process", clusters.process, processes).within("windows")?;
        let groups = clusters.groups.len();
        if groups > MAX_GROUPS {
            return Err(format!("windows: {groups} groups are more than there can be"));
        }
        let group = |of: &v1::Cluster| {
            Ok(Cluster {
                length: number("length", of.length)?,
                total: [number("bytes", of.bytes)?, number("objects", of.objects)?],
                own_ns: number("own_ns", of.own_ns)?,
                traps: number("traps", of.traps)?,
            })
        };
        let groups: Result<_, String> = clusters.groups.iter().map(group).collect();
        let of = Clusters { groups: groups.within("windows")?, windows: clusters.windows };
        to.clusters.insert(clusters.process, of);
    }
    Ok(())
}
