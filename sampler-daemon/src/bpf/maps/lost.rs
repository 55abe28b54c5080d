//! Samples whose record was lost: their sizes and rates, for the totals.

use crate::bpf::sys;
use aya::maps::MapData;
use sampler_common::wire::{LostCell, LostKey};
use std::io;
use std::os::fd::AsFd;

/// The map `LOST`.
pub struct LostCells(MapData);

impl LostCells {
    pub(in crate::bpf) fn new(map: MapData) -> LostCells {
        LostCells(map)
    }

    /// All cells, counted since the program was loaded.
    pub fn read(&self) -> io::Result<Vec<(LostKey, LostCell)>> {
        let zero = (LostKey { design: 0, slot: 0, bucket: 0 }, LostCell::default());
        sys::entries(self.0.fd().as_fd(), zero)
    }

    /// Removes and returns the cells of a slot. A sample that is lost meanwhile is in a returned
    /// cell or in a new one.
    pub fn take_slot(&mut self, slot: u32) -> io::Result<Vec<(LostKey, LostCell)>> {
        let mut taken = Vec::new();
        for (key, _) in self.read()?.into_iter().filter(|(key, _)| key.slot == slot) {
            let cell = sys::take(self.0.fd().as_fd(), &key)?;
            taken.extend(cell.map(|cell| (key, cell)));
        }
        Ok(taken)
    }
}
