//! Frames: functions by their names, as locations.

use crate::profile::{Line, Location};
use std::collections::HashMap;

/// Functions as locations, each once.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) locations: Vec<Location>,
    pub(super) indices: HashMap<String, u32>,
}

impl Frames {
    pub(super) fn location(&mut self, function: String) -> u32 {
        if let Some(index) = self.indices.get(&function) {
            return *index;
        }
        let index = self.locations.len() as u32;
        let line = Line { function: function.clone(), ..Line::default() };
        self.locations.push(Location { mapping: 0, address: u64::from(index), lines: vec![line] });
        self.indices.insert(function, index);
        index
    }
}
