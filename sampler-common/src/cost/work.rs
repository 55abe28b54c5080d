//! The work of a process's probes: events by their price.

use crate::counting::Count;
use crate::wire::Role;

/// The ways of a hit through the eBPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    /// Allocating functions whose return can be probed.
    Malloc,
    /// Allocating functions of which only the entry is probed: functions that can throw, and
    /// `otel_memory:alloc` of processes that sample by themselves. They cost as much as [`Free`].
    ///
    /// [`Free`]: Program::Free
    New,
    /// Freeing functions, and `otel_memory:free`.
    Free,
}

impl Program {
    /// Every way.
    pub const ALL: [Program; 3] = [Program::Malloc, Program::New, Program::Free];

    /// The way of a role's hits; `None` for functions that map memory, whose hits are not counted.
    pub const fn of(role: Role) -> Option<Program> {
        Some(match role {
            Role::Malloc
            | Role::Calloc
            | Role::Realloc
            | Role::AlignedAlloc
            | Role::PosixMemalign => Program::Malloc,
            Role::New | Role::OtelAlloc => Program::New,
            Role::Free | Role::OtelFree | Role::LibraryEnded => Program::Free,
            Role::Map | Role::Unmap | Role::Remap | Role::MoveBreak => return None,
        })
    }
}

/// How the kernel runs the probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placed {
    /// The kernel emulates the instruction.
    Emulated,
    /// The kernel single-steps the instruction out of line: many times more expensive.
    SingleStepped,
}

impl Placed {
    /// The placement of one function's probe.
    pub fn one(emulated: bool) -> Placed {
        if emulated { Placed::Emulated } else { Placed::SingleStepped }
    }
}

/// A number of events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Events {
    /// Number of events.
    pub count: f64,
    /// Variance of `count`; 0 if the count is exact.
    pub variance: f64,
}

impl Events {
    /// An exact number of events.
    pub fn exact(count: u64) -> Events {
        Events { count: count as f64, variance: 0.0 }
    }

    fn add(&mut self, other: Events) {
        self.count += other.count;
        self.variance += other.variance;
    }

    /// The events after `earlier`. The additions of an approximate counter do not depend on its
    /// earlier additions, so its variance grows by that of the later part.
    fn since(self, earlier: Events) -> Events {
        Events {
            count: (self.count - earlier.count).max(0.0),
            variance: (self.variance - earlier.variance).max(0.0),
        }
    }
}

impl From<Count> for Events {
    /// Half the interval (95 %) is 1.96 standard deviations.
    fn from(count: Count) -> Events {
        let deviation = (count.high - count.low) / (2.0 * 1.959_963_984_540_054);
        Events { count: count.value, variance: deviation * deviation }
    }
}

/// Everything that the probes of one or several processes have done since they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Hits by program, and by the placement of the probes.
    pub(super) hits: [[Events; 2]; Program::ALL.len()],
    /// Calls that were followed to their return and were not sampled.
    pub(super) returns: Events,
    /// Samples.
    pub(super) samples: Events,
    /// KiB of stack in the samples.
    pub(super) stack_kib: f64,
}

impl Work {
    /// Adds hits of a role's probes with this placement.
    pub fn hit(&mut self, role: Role, placed: Placed, hits: impl Into<Events>) {
        if let Some(program) = Program::of(role) {
            self.hits[program as usize][placed as usize].add(hits.into());
        }
    }

    /// Adds calls that were followed to their return and were not sampled.
    pub fn returned(&mut self, calls: Events) {
        self.returns.add(calls);
    }

    /// Adds samples with `stack_bytes` of stack altogether.
    pub fn sampled(&mut self, samples: Events, stack_bytes: u64) {
        self.samples.add(samples);
        self.stack_kib += stack_bytes as f64 / 1024.0;
    }

    /// Calls that were followed to their return.
    pub fn returns(&self) -> f64 {
        self.returns.count + self.samples.count
    }

    /// Hits of all probes.
    pub fn all_hits(&self) -> f64 {
        self.hits.iter().flatten().map(|events| events.count).sum()
    }

    /// Hits of one program's probes, and nothing else.
    #[must_use]
    pub fn only(&self, program: Program) -> Work {
        let mut only = Work::default();
        only.hits[program as usize] = self.hits[program as usize];
        only
    }

    /// Adds the work of others.
    pub fn add(&mut self, other: &Work) {
        let mut from = *other;
        for (to, from) in self.events().into_iter().zip(from.events()) {
            to.add(*from);
        }
        self.stack_kib += other.stack_kib;
    }

    /// The work after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Work) -> Work {
        let (mut later, mut before) = (*self, *earlier);
        for (to, from) in later.events().into_iter().zip(before.events()) {
            *to = to.since(*from);
        }
        later.stack_kib = (later.stack_kib - earlier.stack_kib).max(0.0);
        later
    }

    fn events(&mut self) -> Vec<&mut Events> {
        let Work { hits, returns, samples, .. } = self;
        hits.iter_mut().flatten().chain([returns, samples]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_since_an_earlier_state_is_the_difference() {
        let mut early = Work::default();
        early.hit(Role::Malloc, Placed::Emulated, Events::exact(100));
        early.sampled(Events::exact(2), 4096);
        let mut late = early;
        let approximate = Events { count: 50.0, variance: 9.0 };
        late.hit(Role::Malloc, Placed::Emulated, approximate);
        late.hit(Role::OtelAlloc, Placed::Emulated, Events::exact(3));
        late.hit(Role::Map, Placed::Emulated, Events::exact(4));
        late.sampled(Events::exact(1), 1024);
        late.returned(approximate);
        assert_eq!(late.only(Program::New).all_hits(), 3.0);
        assert_eq!(late.only(Program::Free), Work::default());
        let mut sum = late.since(&early);
        assert_eq!((sum.all_hits(), sum.returns(), sum.stack_kib), (53.0, 51.0, 1.0));
        assert_eq!(sum.hits[0][0], approximate);
        sum.add(&early);
        assert_eq!(sum, late);
        assert_eq!(early.since(&late).all_hits(), 0.0);
    }
}
