//! The json form of rows and of the [`Reference`] of a profile. A row has its moments by stratum: a
//! process and a size class.
//!
//! A reader of the file needs both to compute intervals again. Quantities of a stratum without
//! samples are left out.

use super::{ExactObject, MomentsObject};
use crate::estimate::{
    Cluster, Clusters, Epoch, Moments, Reference, Row, RowMoments, Stratum, StratumTotals, Trials,
    Unseen,
};
use crate::profile::{Exact, Profile};
use serde::Serialize;
use serde::ser::Serializer;

#[derive(Serialize)]
struct StratumObject {
    process: u32,
    class: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc_space: Option<MomentsObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc_objects: Option<MomentsObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inuse_space: Option<MomentsObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inuse_objects: Option<MomentsObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alloc_trials: Option<TrialsObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inuse_trials: Option<TrialsObject>,
    #[serde(skip_serializing_if = "is_constant")]
    alloc_rarest: f64,
    #[serde(skip_serializing_if = "is_constant")]
    inuse_rarest: f64,
}

/// Whether the rate never changed, so that rates are not distinguished.
fn is_constant(max_unseen: &f64) -> bool {
    *max_unseen == 0.0
}

#[derive(Serialize)]
struct TrialsObject {
    failures: f64,
    variance: f64,
    tail: f64,
}

#[derive(Serialize)]
struct ReferenceObject<'a> {
    pids: &'a [u32],
    interval_bytes: f64,
    #[serde(serialize_with = "totals")]
    strata: &'a Reference,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clusters: Vec<ClustersObject>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    held_unknown: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allocations_unseen: bool,
}

/// The windows of a process.
#[derive(Serialize)]
struct ClustersObject {
    process: u32,
    windows: u32,
    groups: Vec<ClusterObject>,
}

#[derive(Serialize)]
struct ClusterObject {
    length: f64,
    bytes: f64,
    objects: f64,
    own_ns: f64,
    traps: f64,
}

/// Infinite numbers are `null`.
#[derive(Serialize)]
struct TotalsObject {
    #[serde(flatten)]
    sampled: StratumObject,
    exact: Option<ExactObject>,
    unseen_objects: f64,
    unseen_bytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<ExactObject>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    epochs: Vec<EpochObject>,
}

#[derive(Serialize)]
struct EpochObject {
    exact: ExactObject,
    alloc: UnseenObject,
    inuse: UnseenObject,
}

/// Infinite numbers are `null`.
#[derive(Serialize)]
struct UnseenObject {
    objects: f64,
    bytes: f64,
}

impl From<&Epoch> for EpochObject {
    fn from(&Epoch { bytes, objects, alloc, inuse }: &Epoch) -> EpochObject {
        let unseen = |Unseen { objects, bytes }| UnseenObject { objects, bytes };
        EpochObject {
            exact: Exact { alloc_objects: objects, alloc_space: bytes }.into(),
            alloc: unseen(alloc),
            inuse: unseen(inuse),
        }
    }
}

/// The strata of a row, as a list.
pub(super) fn row<S: Serializer>(row: &Row, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(row.strata().map(|(stratum, of)| stratum_object(stratum, of)))
}

/// The reference of a profile.
pub(super) fn reference<S: Serializer>(of: &Profile, serializer: S) -> Result<S::Ok, S::Error> {
    let Profile { pids, reference, .. } = of;
    let Reference { interval_bytes, held_unknown, allocations_unseen, .. } = *reference;
    let clusters = reference.clusters.iter().map(clusters_object).collect();
    ReferenceObject {
        pids,
        interval_bytes,
        strata: reference,
        clusters,
        held_unknown,
        allocations_unseen,
    }
    .serialize(serializer)
}

fn clusters_object((process, of): (&u32, &Clusters)) -> ClustersObject {
    let group = |of: &Cluster| {
        let [bytes, objects] = of.total;
        let Cluster { length, own_ns, traps, .. } = *of;
        ClusterObject { length, bytes, objects, own_ns, traps }
    };
    let groups = of.groups.iter().map(group).collect();
    ClustersObject { process: *process, windows: of.windows, groups }
}

fn totals<S: Serializer>(reference: &Reference, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(reference.strata.iter().map(|(stratum, of)| {
        let StratumTotals { sampled, exact, upper_totals, unseen_objects, unseen_bytes } = of;
        let object = |of: &Option<(u64, u64)>| {
            of.map(|(alloc_space, alloc_objects)| Exact { alloc_objects, alloc_space }.into())
        };
        TotalsObject {
            sampled: stratum_object(*stratum, sampled),
            exact: object(exact),
            at_most: object(upper_totals),
            unseen_objects: *unseen_objects,
            unseen_bytes: *unseen_bytes,
            epochs: reference.epochs_of(stratum).iter().map(EpochObject::from).collect(),
        }
    }))
}

fn stratum_object(Stratum { process, class }: Stratum, of: &RowMoments) -> StratumObject {
    let moments = |of: &Moments| (of.samples > 0).then(|| of.into());
    let trials = |of: &Trials| {
        let Trials { failures, variance, tail } = *of;
        (*of != Trials::default()).then_some(TrialsObject { failures, variance, tail })
    };
    StratumObject {
        process,
        class,
        alloc_space: moments(&of.alloc_space),
        alloc_objects: moments(&of.alloc_objects),
        inuse_space: moments(&of.inuse_space),
        inuse_objects: moments(&of.inuse_objects),
        alloc_trials: trials(&of.alloc_trials),
        inuse_trials: trials(&of.inuse_trials),
        alloc_rarest: of.alloc_max_unseen,
        inuse_rarest: of.inuse_max_unseen,
    }
}
