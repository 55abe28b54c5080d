//! What was seen in windows, both ways.

use super::from_wire::{Within, check_index};
use super::number::{number, unbounded};
use crate::rpc::v1;
use sampler_common::duty::MAX_GROUPS;
use sampler_common::estimate::{Cluster, Clusters, Correction, Reference, Row};

/// What a row has in groups of windows.
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
        v1::Cluster { length: of.length, bytes, objects }
    };
    let process = |(process, of): (&u32, &Clusters)| v1::Clusters {
        process: *process,
        groups: of.groups.iter().map(group).collect(),
        windows: of.windows,
        error: of.errors[1],
        error_below: Some(of.errors[0]),
        correction: of.correction.map(correction_to_wire),
    };
    reference.clusters.iter().map(process).collect()
}

fn correction_to_wire(of: Correction) -> v1::Correction {
    v1::Correction {
        allocating_ns: of.allocating_ns,
        allocating_error_ns: of.allocating_error_ns,
        freeing_ns: of.freeing_ns,
        freeing_error_ns: of.freeing_error_ns,
        of_drag: of.of_drag,
        of_drag_below: of.of_drag_below,
        of_clock: of.of_clock,
        marks: of.marks,
        traffic_bytes: of.traffic_bytes,
        tallied: of.tallied,
        tally: of.tally,
        tallies: of.tallies,
    }
}

fn correction(of: &v1::Correction) -> Result<Correction, String> {
    Ok(Correction {
        allocating_ns: number("allocating_ns", of.allocating_ns)?,
        allocating_error_ns: number("allocating_error_ns", of.allocating_error_ns)?,
        freeing_ns: number("freeing_ns", of.freeing_ns)?,
        freeing_error_ns: number("freeing_error_ns", of.freeing_error_ns)?,
        of_drag: number("of_drag", of.of_drag)?,
        of_drag_below: number("of_drag_below", of.of_drag_below)?,
        of_clock: number("of_clock", of.of_clock)?,
        marks: of.marks,
        traffic_bytes: of.traffic_bytes,
        tallied: of.tallied,
        tally: of.tally,
        tallies: of.tallies,
    })
}

/// Adds what a row has in groups of windows.
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
            })
        };
        let groups: Result<_, String> = clusters.groups.iter().map(group).collect();
        let above = unbounded("error", clusters.error).within("windows")?;
        let below = clusters.error_below.unwrap_or(above);
        let below = unbounded("error_below", below).within("windows")?;
        let of = Clusters {
            groups: groups.within("windows")?,
            windows: clusters.windows,
            errors: [below, above],
            correction: clusters
                .correction
                .as_ref()
                .map(correction)
                .transpose()
                .within("windows")?,
        };
        to.clusters.insert(clusters.process, of);
    }
    Ok(())
}
