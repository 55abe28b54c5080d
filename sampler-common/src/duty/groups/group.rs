//! Neighbouring windows of a process.

use super::TALLIES;
use crate::duty::{Bend, Flow, Marks, Pace};
use crate::limits::CLASSES;

/// Neighbouring windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Windows in it.
    pub windows: u32,
    /// Ticks of their strata together, and of what else belongs to these.
    pub length: f64,
    /// The same without what else.
    pub(in crate::duty) strata: f64,
    /// Bytes allocated in the windows by size class, each divided by its window's share of the program's own progress.
    pub bytes: [f64; CLASSES],
    /// The same of objects.
    pub objects: [f64; CLASSES],
    /// How fast the program went in the windows.
    pub pace: Pace,
    /// What bytes and objects are to be multiplied by, as traps are found to slow the program.
    pub bend: [Bend; 2],
    /// What a marker has told in them.
    pub marks: Marks,
    /// What the process's tallies have counted in them.
    pub flows: [Flow; TALLIES],
}

impl Group {
    pub(super) fn add(&mut self, other: &Group) {
        self.windows += other.windows;
        self.pace.add(&other.pace);
        self.marks.add(&other.marks);
        self.flows.iter_mut().zip(&other.flows).for_each(|(to, from)| to.add(from));
        self.bend.iter_mut().zip(&other.bend).for_each(|(to, from)| to.add(from));
        self.length += other.length;
        self.strata += other.strata;
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, from)| *to += from);
        self.objects.iter_mut().zip(other.objects).for_each(|(to, from)| *to += from);
    }
}
