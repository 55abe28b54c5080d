//! Conversion of rows in strata, and of their reference, to the protocol's form and back.

use super::clusters;
use super::from_wire::{Within, check_index, each};
use super::number::{moments, trials, unbounded};
use super::to_wire::{moments_to_wire, trials_to_wire};
use crate::rpc::v1;
use sampler_common::estimate::{
    Epoch, Moments, Reference, Row, RowMoments, Stratum, StratumTotals, Trials, Unseen,
};
use sampler_common::limits::CLASSES;

/// The strata of a row.
pub(super) fn row_to_wire(row: &Row) -> Vec<v1::Stratum> {
    row.strata().map(|(stratum, of)| stratum_to_wire(stratum, of)).collect()
}

/// The reference, with the pids of the processes of its strata.
pub(super) fn reference_to_wire(reference: &Reference, pids: &[u32]) -> v1::Reference {
    let totals = |(stratum, of): (&Stratum, &StratumTotals)| v1::StratumTotals {
        sampled: Some(stratum_to_wire(*stratum, &of.sampled)),
        exact: of
            .exact
            .map(|(alloc_space, alloc_objects)| v1::Exact { alloc_objects, alloc_space }),
        unseen_objects: of.unseen_objects,
        unseen_bytes: of.unseen_bytes,
        upper_totals: of
            .upper_totals
            .map(|(alloc_space, alloc_objects)| v1::Exact { alloc_objects, alloc_space }),
        epochs: reference.epochs_of(stratum).iter().map(epoch_to_wire).collect(),
    };
    v1::Reference {
        pids: pids.to_vec(),
        strata: reference.strata.iter().map(totals).collect(),
        interval_bytes: reference.interval_bytes,
        clusters: clusters::reference_to_wire(reference),
        held_unknown: reference.held_unknown,
        allocations_unseen: reference.allocations_unseen,
    }
}

fn stratum_to_wire(Stratum { process, class }: Stratum, of: &RowMoments) -> v1::Stratum {
    let moments = |of: &Moments| (*of != Moments::default()).then(|| moments_to_wire(of));
    let trials = |of: &Trials| (*of != Trials::default()).then(|| trials_to_wire(of));
    v1::Stratum {
        process,
        size_class: u32::from(class),
        alloc_objects: moments(&of.alloc_objects),
        alloc_space: moments(&of.alloc_space),
        inuse_objects: moments(&of.inuse_objects),
        inuse_space: moments(&of.inuse_space),
        alloc_trials: trials(&of.alloc_trials),
        inuse_trials: trials(&of.inuse_trials),
        alloc_max_unseen: of.alloc_max_unseen,
        inuse_max_unseen: of.inuse_max_unseen,
    }
}

fn epoch_to_wire(Epoch { bytes, objects, alloc, inuse }: &Epoch) -> v1::Epoch {
    v1::Epoch {
        exact: Some(v1::Exact { alloc_objects: *objects, alloc_space: *bytes }),
        unseen_objects: alloc.objects,
        unseen_bytes: alloc.bytes,
        inuse_unseen_objects: inuse.objects,
        inuse_unseen_bytes: inuse.bytes,
    }
}

fn epoch(of: v1::Epoch) -> Result<Epoch, String> {
    let exact = of.exact.ok_or("it has no totals")?;
    let unseen = |names: [&str; 2], numbers: [f64; 2]| -> Result<Unseen, String> {
        let [objects, bytes] = [0, 1].map(|index| unbounded(names[index], numbers[index]));
        Ok(Unseen { objects: objects?, bytes: bytes? })
    };
    Ok(Epoch {
        bytes: exact.alloc_space,
        objects: exact.alloc_objects,
        alloc: unseen(["unseen_objects", "unseen_bytes"], [of.unseen_objects, of.unseen_bytes])?,
        inuse: unseen(
            ["inuse_unseen_objects", "inuse_unseen_bytes"],
            [of.inuse_unseen_objects, of.inuse_unseen_bytes],
        )?,
    })
}

/// A row. Its strata are those of the reference.
pub(super) fn row(
    strata: Vec<v1::Stratum>,
    clusters: &[v1::ClusterSum],
    reference: &Reference,
) -> Result<Row, String> {
    let mut row = Row::default();
    each(strata, "stratum", |of| {
        let (stratum, moments) = checked(&of)?;
        if !reference.strata.contains_key(&stratum) {
            let Stratum { process, class } = stratum;
            return Err(format!("process {process}, class {class} is not in the reference"));
        }
        // A stratum that is listed twice consists of two disjoint sets.
        row.stratum(stratum).add(&moments);
        Ok(())
    })?;
    clusters::row(clusters, reference, &mut row)?;
    Ok(row)
}

/// The pids and the reference of a profile.
pub(super) fn reference(of: Option<v1::Reference>) -> Result<(Vec<u32>, Reference), String> {
    let of = of.ok_or("it is missing (is samplerd older than this sampler?)")?;
    let mut reference = Reference {
        interval_bytes: unbounded("interval_bytes", of.interval_bytes)?,
        held_unknown: of.held_unknown,
        allocations_unseen: of.allocations_unseen,
        ..Reference::default()
    };
    let strata = each(of.strata, "stratum", |totals| {
        let sampled = totals.sampled.as_ref().ok_or("it has no moments")?;
        check_index("process", sampled.process, of.pids.len())?;
        let (stratum, sampled) = checked(sampled)?;
        Ok((
            stratum,
            StratumTotals {
                sampled,
                exact: totals.exact.map(|exact| (exact.alloc_space, exact.alloc_objects)),
                unseen_objects: unbounded("unseen_objects", totals.unseen_objects)?,
                unseen_bytes: unbounded("unseen_bytes", totals.unseen_bytes)?,
                upper_totals: totals
                    .upper_totals
                    .map(|most| (most.alloc_space, most.alloc_objects)),
            },
            each(totals.epochs, "epoch", epoch)?,
        ))
    })?;
    for (stratum, totals, epochs) in strata {
        if !epochs.is_empty() {
            reference.epochs.insert(stratum, epochs);
        }
        if reference.strata.insert(stratum, totals).is_some() {
            let Stratum { process, class } = stratum;
            return Err(format!("process {process}, class {class} is listed twice"));
        }
    }
    clusters::reference(of.clusters, of.pids.len(), &mut reference)?;
    Ok((of.pids, reference))
}

/// Most samples of a stratum: sums over every row of a largest message do not overflow.
const MAX_SAMPLES: u64 = 1 << 40;

fn checked(of: &v1::Stratum) -> Result<(Stratum, RowMoments), String> {
    check_index("class", of.size_class, CLASSES)?;
    let moments = |name: &str, of: &Option<v1::Moments>| {
        let of = of.as_ref().map(moments).transpose().within(name)?.unwrap_or_default();
        match of.samples {
            0..=MAX_SAMPLES => Ok(of),
            samples => Err(format!("{name}: {samples} samples are more than there can be")),
        }
    };
    let trials = |name: &str, of: &Option<v1::Trials>| {
        of.as_ref().map(trials).transpose().map(Option::unwrap_or_default).within(name)
    };
    let row = RowMoments {
        alloc_objects: moments("alloc_objects", &of.alloc_objects)?,
        alloc_space: moments("alloc_space", &of.alloc_space)?,
        inuse_objects: moments("inuse_objects", &of.inuse_objects)?,
        inuse_space: moments("inuse_space", &of.inuse_space)?,
        alloc_trials: trials("alloc_trials", &of.alloc_trials)?,
        inuse_trials: trials("inuse_trials", &of.inuse_trials)?,
        alloc_max_unseen: unbounded("alloc_max_unseen", of.alloc_max_unseen)?,
        inuse_max_unseen: unbounded("inuse_max_unseen", of.inuse_max_unseen)?,
    };
    Ok((Stratum { process: of.process, class: of.size_class as u8 }, row))
}
