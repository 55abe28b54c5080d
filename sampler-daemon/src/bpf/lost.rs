//! Samples whose record was lost: sizes and rates, for the totals.

use super::sys;
use aya::maps::MapData;
use sampler_common::wire::{LostCell, LostKey};
use std::io;
use std::os::fd::AsFd;

/// The map `LOST`.
pub struct LostCells(MapData);

impl LostCells {
    pub(super) fn new(map: MapData) -> LostCells {
        LostCells(map)
    }

    /// All cells, counted since the program was loaded.
    pub fn read(&self) -> io::Result<Vec<(LostKey, LostCell)>> {
        let zero = (LostKey { design: 0, slot: 0, bucket: 0 }, LostCell::default());
        sys::entries(self.0.fd().as_fd(), zero)
    }

    /// Takes the cells of a slot out (its process has exited).
    pub fn clear_slot(&self, slot: u32) -> io::Result<()> {
        for (key, _) in self.read()?.iter().filter(|(key, _)| key.slot == slot) {
            sys::take::<_, LostCell>(self.0.fd().as_fd(), key)?;
        }
        Ok(())
    }
}
