//! The work of a process's probes: events by their price.

use crate::counting::{Count, Counted};
use crate::estimate::Confidence;
use crate::wire::Role;

/// The paths of a hit through the eBPF program, each with its own price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    /// `malloc` with malloc's own argument.
    Malloc,
    /// Other allocating functions.
    Sized,
    /// Throwing functions, of which only the entry is probed.
    New,
    /// Freeing functions.
    Free,
    /// `otel_memory:alloc` of processes that sample by themselves.
    OtelAlloc,
    /// `otel_memory:free`
    OtelFree,
}

impl Program {
    /// Every path.
    pub const ALL: [Program; 6] = [
        Program::Malloc,
        Program::Sized,
        Program::New,
        Program::Free,
        Program::OtelAlloc,
        Program::OtelFree,
    ];

    /// The path of a role's hits; `None` if it has no price.
    pub const fn of(role: Role) -> Option<Program> {
        Some(match role {
            Role::Malloc => Program::Malloc,
            Role::Calloc | Role::Realloc | Role::AlignedAlloc | Role::PosixMemalign => {
                Program::Sized
            }
            Role::New => Program::New,
            Role::Free => Program::Free,
            Role::OtelAlloc => Program::OtelAlloc,
            // The library's own probe costs no more than the end of a block that was not sampled.
            Role::OtelFree | Role::LibraryEnded => Program::OtelFree,
            // Rare, and not counted.
            Role::Map | Role::Unmap | Role::Remap | Role::MoveBreak => return None,
        })
    }

    /// Whether the probes are USDTs: nops, which the kernel always emulates.
    pub const fn is_usdt(self) -> bool {
        matches!(self, Program::OtelAlloc | Program::OtelFree)
    }

    /// The name: `malloc`, `sized`, `new`, `free`, `otel_alloc` or `otel_free`.
    pub const fn name(self) -> &'static str {
        match self {
            Program::Malloc => "malloc",
            Program::Sized => "sized",
            Program::New => "new",
            Program::Free => "free",
            Program::OtelAlloc => "otel_alloc",
            Program::OtelFree => "otel_free",
        }
    }
}

/// How the kernel runs the probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placed {
    /// The kernel emulates the instruction.
    Emulated,
    /// The kernel single-steps the instruction out of line: many times more expensive.
    SingleStepped,
    /// One or the other, unknown which: functions of both kinds are counted together.
    Either,
}

impl Placed {
    /// The placement of one function's probe.
    pub fn one(emulated: bool) -> Placed {
        if emulated { Placed::Emulated } else { Placed::SingleStepped }
    }

    /// The placement of functions that share a count; `None` for no function.
    pub fn of(emulated: impl IntoIterator<Item = bool>) -> Option<Placed> {
        emulated.into_iter().map(Placed::one).reduce(|a, b| if a == b { a } else { Placed::Either })
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

    /// A number between two limits, every number equally likely.
    pub fn between(low: u64, high: u64) -> Events {
        let width = high.saturating_sub(low) as f64;
        Events { count: low as f64 + width / 2.0, variance: width * width / 12.0 }
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

impl From<Counted> for Events {
    fn from(counted: Counted) -> Events {
        counted.count(Confidence::DEFAULT).into()
    }
}

/// Everything that the probes of one or several processes have done since they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Hits by program, and by the placement of the probes.
    pub(super) hits: [[Events; 3]; Program::ALL.len()],
    /// Hits of probes without a price.
    pub(super) other: Events,
    /// Calls that were followed to their return.
    pub(super) returns: Events,
    /// Samples sent.
    pub(super) samples: Events,
    /// KiB of stack in the samples.
    pub(super) stack_kib: f64,
    /// Sampled blocks whose end was sent.
    pub(super) ended: Events,
}

impl Work {
    /// Adds hits of a role's probes with this placement.
    pub fn hit(&mut self, role: Role, placed: Placed, hits: impl Into<Events>) {
        match Program::of(role) {
            Some(program) => self.hits[program as usize][placed as usize].add(hits.into()),
            None => self.other.add(hits.into()),
        }
    }

    /// Adds calls that were followed to their return.
    pub fn returned(&mut self, calls: Events) {
        self.returns.add(calls);
    }

    /// Calls that were followed to their return.
    pub fn returns(&self) -> f64 {
        self.returns.count
    }

    /// Adds samples with `stack_bytes` of stack altogether.
    pub fn sampled(&mut self, samples: u64, stack_bytes: u64) {
        self.samples.add(Events::exact(samples));
        self.stack_kib += stack_bytes as f64 / 1024.0;
    }

    /// Adds sampled blocks that ended.
    pub fn ended(&mut self, blocks: u64) {
        self.ended.add(Events::exact(blocks));
    }

    /// Hits of all probes.
    pub fn all_hits(&self) -> f64 {
        let placed = self.hits.iter().flatten().map(|events| events.count).sum::<f64>();
        placed + self.other.count
    }

    /// Hits of one program's probes, and nothing else.
    #[must_use]
    pub fn only(&self, program: Program) -> Work {
        let mut only = Work::default();
        only.hits[program as usize] = self.hits[program as usize];
        only
    }

    /// Samples.
    pub fn samples(&self) -> f64 {
        self.samples.count
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
        let Work { hits, other, returns, samples, ended, .. } = self;
        hits.iter_mut().flatten().chain([other, returns, samples, ended]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_a_shared_count_are_placed_alike_or_either() {
        assert_eq!(Placed::of([true, true]), Some(Placed::Emulated));
        assert_eq!(Placed::of([false]), Some(Placed::SingleStepped));
        assert_eq!(Placed::of([true, false, true]), Some(Placed::Either));
        assert_eq!(Placed::of([]), None);
    }

    #[test]
    fn work_since_an_earlier_state_is_the_difference() {
        let mut early = Work::default();
        early.hit(Role::Malloc, Placed::Emulated, Events::exact(100));
        early.sampled(2, 4096);
        let mut late = early;
        let approximate = Events { count: 50.0, variance: 9.0 };
        late.hit(Role::Malloc, Placed::Emulated, approximate);
        late.hit(Role::OtelAlloc, Placed::Emulated, Events::exact(3));
        late.sampled(1, 1024);
        late.ended(7);
        late.returned(Events::between(0, 6));
        assert_eq!(late.only(Program::OtelAlloc).all_hits(), 3.0);
        assert_eq!(late.only(Program::Free), Work::default());
        let mut sum = late.since(&early);
        assert_eq!((sum.all_hits(), sum.samples(), sum.stack_kib), (53.0, 1.0, 1.0));
        assert_eq!(sum.hits[0][0], approximate);
        assert_eq!(sum.returns, Events { count: 3.0, variance: 3.0 });
        sum.add(&early);
        assert_eq!(sum, late);
        assert_eq!(early.since(&late).all_hits(), 0.0);
    }
}
