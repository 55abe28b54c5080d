//! Strata: the moments of a stack by process and size class, and the reference of them all.

use super::quantity::{MomentsObject, moments, or_infinite};
use crate::estimate::{
    Cluster, Clusters, Epoch, Reference, Row, RowMoments, Stratum, StratumTotals, Trials, Unseen,
};
use crate::limits::CLASSES;
use serde::Deserialize;

#[derive(Clone, Copy, Deserialize)]
pub(super) struct ExactObject {
    pub(super) alloc_objects: u64,
    pub(super) alloc_space: u64,
}

#[derive(Deserialize)]
pub(super) struct StratumObject {
    pub(super) process: u32,
    pub(super) class: u8,
    pub(super) alloc_space: Option<MomentsObject>,
    pub(super) alloc_objects: Option<MomentsObject>,
    pub(super) inuse_space: Option<MomentsObject>,
    pub(super) inuse_objects: Option<MomentsObject>,
    pub(super) alloc_trials: Option<TrialsObject>,
    pub(super) inuse_trials: Option<TrialsObject>,
    #[serde(default, deserialize_with = "or_infinite")]
    pub(super) alloc_rarest: f64,
    #[serde(default, deserialize_with = "or_infinite")]
    pub(super) inuse_rarest: f64,
}

#[derive(Deserialize)]
pub(super) struct TrialsObject {
    #[serde(deserialize_with = "or_infinite")]
    pub(super) failures: f64,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) variance: f64,
    pub(super) tail: f64,
}

#[derive(Deserialize)]
pub(super) struct ReferenceObject {
    pub(super) pids: Vec<u32>,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) interval_bytes: f64,
    pub(super) strata: Vec<TotalsObject>,
    #[serde(default)]
    pub(super) clusters: Vec<ClustersObject>,
    #[serde(default)]
    held_unknown: bool,
    #[serde(default)]
    allocations_unseen: bool,
}

#[derive(Deserialize)]
pub(super) struct ClustersObject {
    process: u32,
    windows: u32,
    groups: Vec<ClusterObject>,
}

#[derive(Deserialize)]
struct ClusterObject {
    length: f64,
    bytes: f64,
    objects: f64,
    own_ns: f64,
    traps: f64,
}

#[derive(Deserialize)]
pub(super) struct TotalsObject {
    #[serde(flatten)]
    pub(super) sampled: StratumObject,
    pub(super) exact: Option<ExactObject>,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) unseen_objects: f64,
    #[serde(deserialize_with = "or_infinite")]
    pub(super) unseen_bytes: f64,
    pub(super) at_most: Option<ExactObject>,
    #[serde(default)]
    pub(super) epochs: Vec<EpochObject>,
}

#[derive(Deserialize)]
pub(super) struct EpochObject {
    exact: ExactObject,
    alloc: UnseenObject,
    inuse: UnseenObject,
}

#[derive(Clone, Copy, Deserialize)]
struct UnseenObject {
    #[serde(deserialize_with = "or_infinite")]
    objects: f64,
    #[serde(deserialize_with = "or_infinite")]
    bytes: f64,
}

impl From<&EpochObject> for Epoch {
    fn from(of: &EpochObject) -> Epoch {
        let unseen = |UnseenObject { objects, bytes }| Unseen { objects, bytes };
        Epoch {
            bytes: of.exact.alloc_space,
            objects: of.exact.alloc_objects,
            alloc: unseen(of.alloc),
            inuse: unseen(of.inuse),
        }
    }
}

/// A stratum and its moments.
pub(super) fn stratum(of: &StratumObject) -> Result<(Stratum, RowMoments), String> {
    if usize::from(of.class) >= CLASSES {
        return Err(format!("class {} is not below {CLASSES}", of.class));
    }
    let moments = |of: &Option<MomentsObject>| {
        of.as_ref().map(moments).transpose().map(Option::unwrap_or_default)
    };
    let trials = |of: &Option<TrialsObject>| {
        let of = of.as_ref();
        of.map(|TrialsObject { failures, variance, tail }| Trials {
            failures: *failures,
            variance: *variance,
            tail: *tail,
        })
        .unwrap_or_default()
    };
    let row = RowMoments {
        alloc_space: moments(&of.alloc_space)?,
        alloc_objects: moments(&of.alloc_objects)?,
        inuse_space: moments(&of.inuse_space)?,
        inuse_objects: moments(&of.inuse_objects)?,
        alloc_trials: trials(&of.alloc_trials),
        inuse_trials: trials(&of.inuse_trials),
        alloc_max_unseen: of.alloc_rarest,
        inuse_max_unseen: of.inuse_rarest,
    };
    Ok((Stratum { process: of.process, class: of.class }, row))
}

/// Process, group of windows, bytes and objects.
pub(super) type ClusterSum = (u32, u16, [f64; 2]);

pub(super) fn row(
    strata: Vec<StratumObject>,
    clusters: &[ClusterSum],
    reference: &Reference,
) -> Result<Row, String> {
    let mut row = Row::default();
    for of in &strata {
        let (at, moments) = stratum(of)?;
        if !reference.strata.contains_key(&at) {
            return Err(format!(
                "the reference has no class {} of process {}",
                at.class, at.process
            ));
        }
        row.stratum(at).add(&moments);
    }
    for (process, group, sums) in clusters {
        let groups = reference.clusters.get(process).map_or(0, |of| of.groups.len());
        if usize::from(*group) >= groups {
            return Err(format!("the reference has no group {group} of process {process}"));
        }
        row.add_cluster(*process, *group, *sums);
    }
    Ok(row)
}

/// The pids and the reference; for an older file only the interval.
pub(super) fn reference(
    of: Option<ReferenceObject>,
    interval_bytes: u64,
) -> Result<(Vec<u32>, Reference), String> {
    let Some(of) = of else {
        let interval_bytes = interval_bytes as f64;
        return Ok((vec![], Reference { interval_bytes, ..Reference::default() }));
    };
    let ReferenceObject { interval_bytes, held_unknown, allocations_unseen, .. } = of;
    let mut reference =
        Reference { interval_bytes, held_unknown, allocations_unseen, ..Reference::default() };
    for totals in &of.strata {
        let (at, sampled) =
            stratum(&totals.sampled).map_err(|error| format!("reference: {error}"))?;
        let pair = |of: ExactObject| (of.alloc_space, of.alloc_objects);
        let of = StratumTotals {
            sampled,
            exact: totals.exact.map(pair),
            upper_totals: totals.at_most.map(pair),
            unseen_objects: totals.unseen_objects,
            unseen_bytes: totals.unseen_bytes,
        };
        reference.strata.insert(at, of);
        if !totals.epochs.is_empty() {
            reference.epochs.insert(at, totals.epochs.iter().map(Epoch::from).collect());
        }
    }
    for of in &of.clusters {
        let group = |of: &ClusterObject| Cluster {
            length: of.length,
            total: [of.bytes, of.objects],
            own_ns: of.own_ns,
            traps: of.traps,
        };
        let groups = of.groups.iter().map(group).collect();
        let clusters = Clusters { groups, windows: of.windows };
        reference.clusters.insert(of.process, clusters);
    }
    Ok((of.pids, reference))
}
