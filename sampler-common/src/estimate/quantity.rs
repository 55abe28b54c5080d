//! The four quantities of a row.

use super::{Epoch, Moments, RowMoments, Unseen};

/// One of the four quantities of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    AllocObjects,
    AllocSpace,
    InuseObjects,
    InuseSpace,
}

impl Quantity {
    /// The quantity of bytes or objects, held or allocated.
    pub(super) fn new(is_bytes: bool, is_held: bool) -> Quantity {
        match (is_bytes, is_held) {
            (true, true) => Quantity::InuseSpace,
            (true, false) => Quantity::AllocSpace,
            (false, true) => Quantity::InuseObjects,
            (false, false) => Quantity::AllocObjects,
        }
    }

    /// The moments of the quantity.
    pub(super) fn of(self, row: &RowMoments) -> &Moments {
        match self {
            Quantity::AllocObjects => &row.alloc_objects,
            Quantity::AllocSpace => &row.alloc_space,
            Quantity::InuseObjects => &row.inuse_objects,
            Quantity::InuseSpace => &row.inuse_space,
        }
    }

    /// Largest amount without a sample, per unit of hazard, at the lowest rate of the samples.
    pub(super) fn max_unseen(self, row: &RowMoments) -> f64 {
        match self {
            Quantity::AllocObjects | Quantity::AllocSpace => row.alloc_max_unseen,
            Quantity::InuseObjects | Quantity::InuseSpace => row.inuse_max_unseen,
        }
    }

    /// What goes unseen of the quantity in an epoch.
    pub(super) fn unseen(self, epoch: &Epoch) -> &Unseen {
        match self {
            Quantity::AllocObjects | Quantity::AllocSpace => &epoch.alloc,
            Quantity::InuseObjects | Quantity::InuseSpace => &epoch.inuse,
        }
    }

    /// The allocated quantity of the same unit, bytes or objects.
    pub(super) fn allocated(self) -> Quantity {
        if self.is_bytes() { Quantity::AllocSpace } else { Quantity::AllocObjects }
    }

    /// Whether the unit is bytes, not objects.
    pub(super) fn is_bytes(self) -> bool {
        matches!(self, Quantity::AllocSpace | Quantity::InuseSpace)
    }

    /// The one of `bytes` and `objects` that has the quantity's unit.
    pub(super) fn pick<T>(self, bytes: T, objects: T) -> T {
        if self.is_bytes() { bytes } else { objects }
    }
}
