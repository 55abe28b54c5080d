//! What was found in a process, and what that means for what is probed in it.

use super::allocator::{Allocator, Function};
use super::injected;
use super::patched::Patched;
use super::preloaded::Preloaded;
use super::usdt::Usdt;
use sampler_common::note::Blind;
use sampler_common::source::SampleSource;
use std::sync::Arc;

/// Most lines about what cannot be seen in one process.
pub(super) const BLIND_LINES: usize = 16;

/// What is said of a process in which nothing was found.
pub const NONE_MAPPED: &str = "no allocator is mapped (yet): none of its allocations are seen";

/// What is said of a process that does not sample by itself where nothing else is probed.
const NOT_PRELOADED: &str = "does not sample by itself (--samplers-only): none of its allocations are seen; the preloaded \
     library does not enter static and setuid programs";

/// What is said of an allocator that programs call by other names than `malloc`, where a library samples `malloc`.
const PAST_MALLOC: &str = "is called past malloc, which the preloaded library samples: what it gives out is not seen (start the program without that library, or samplerd with --no-usdt)";

/// What is said of an allocator that defines `malloc`, where a sampler samples the `malloc` of another file.
const OTHER_MALLOC: &str = "is not the malloc that the sampler samples: what the program allocates from it by its address (dlopen, dlsym) is not seen";

/// What is said of a program that would move its probes with its code ([`super::moving`]).
pub(super) const MAY_MOVE: &str = "may move its code to anonymous memory";
pub(super) const WOULD_KILL: &str = ", where a probe would kill it: allocations that it serves are not seen (--probe-executables all: at that risk)";
const MOVED: &str =
    "has moved its code to anonymous memory: allocations that it serves are not seen";

/// What was found in a process.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Allocators that can be probed.
    pub allocators: Vec<Allocator>,
    /// What cannot be seen in it, and why, one line each.
    pub blind: Vec<Blind>,
    /// Some of its allocations are among that.
    pub has_unseen_allocations: bool,
    /// Files that sample their allocations by themselves; their own malloc family is not among the allocators.
    pub samplers: Vec<SelfSampler>,
    /// One of these is the process's own `malloc`: what it allocates through other files' is what that one has asked them for.
    pub is_sampled: bool,
    /// The allocator whose `malloc` the process uses, if that can be known.
    pub in_force: Option<InForce>,
    /// Paths of the files that may serve that `malloc`; empty if that cannot be known.
    pub behind_malloc: Vec<String>,
    /// Functions that are not among those of the files above: they are left alone, which is said under `blind`.
    pub patched: Vec<Patched>,
    /// One of the files is a program that Go's linker made.
    pub is_go_program: bool,
}

/// A file that samples its allocations by itself, see [`super::usdt`].
#[derive(Clone, Debug)]
pub struct SelfSampler {
    /// The file, with its probes as functions.
    pub allocator: Allocator,
    /// Its probes.
    pub usdt: Arc<Usdt>,
    /// Its settings, if it is our own library.
    pub preloaded: Option<Preloaded>,
}

impl SelfSampler {
    /// Which source its samples are.
    pub fn source(&self) -> SampleSource {
        match &self.preloaded {
            Some(_) if self.allocator.path == injected::PATH => SampleSource::Injected,
            Some(_) => SampleSource::Preloaded,
            None => SampleSource::OtelMemory,
        }
    }
}

/// The allocator whose `malloc` a process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// What it is, empty if it is none that we know.
    pub name: String,
    /// Path in the process.
    pub path: String,
}

impl Discovery {
    /// The files that can be probed, each with its functions.
    pub fn files(&self) -> impl Iterator<Item = &Allocator> {
        self.allocators.iter().chain(self.samplers.iter().map(|of| &of.allocator))
    }

    /// Whether this file is among those that can be probed.
    pub fn has(&self, identity: (u64, u64)) -> bool {
        self.files().any(|of| of.identity == identity)
    }

    /// Whether a file that samples by itself is the process's own `malloc`: it comes before every other one in the loader's order.
    /// Then those others serve it, or nobody, and to probe them as well would count twice; or they have a heap of their own, of which nothing is seen.
    pub(super) fn prefer_samplers(&mut self) {
        let in_force = self.in_force.as_ref();
        let is_own = |of: &SelfSampler| in_force.is_some_and(|it| it.path == of.allocator.path);
        self.is_sampled = self.samplers.iter().any(|of| of.usdt.defines_malloc && is_own(of));
        if self.is_sampled {
            self.leave_allocators();
        }
    }

    /// The hooks of an injected image are in: what its `malloc` gives out is sampled by that image, and is not probed as well.
    pub fn prefer_injected(&mut self) {
        self.is_sampled = true;
        self.leave_allocators();
    }

    /// Leaves alone what is patched in the process.
    pub fn leave_patched(&mut self, pid: u32, is: impl Fn(&Allocator, &Function) -> bool) {
        let samplers = self.samplers.iter_mut().map(|of| &mut of.allocator);
        for allocator in self.allocators.iter_mut().chain(samplers) {
            if let Some(patched) = Patched::find(pid, allocator, |of| is(allocator, of)) {
                patched.leave_out(allocator);
                self.patched.push(patched);
            }
        }
        self.allocators.retain(|of| !of.functions.is_empty());
        self.samplers.retain(|of| !of.allocator.functions.is_empty());
        self.blind.splice(0..0, self.patched.iter().map(|of| of.blind(pid)));
    }

    /// Leaves out what of the allocators in the file at this path is not in its code any more, which the process has moved.
    pub(super) fn leave_moved(&mut self, path: &str, is_code: impl Fn(u64) -> bool) {
        let moved = Blind::at(path, MOVED);
        // Of what it may do it is known by now.
        let may = |of: &&mut Blind| of.place == path && of.why.starts_with(MAY_MOVE);
        self.blind.iter_mut().filter(may).for_each(|of| *of = moved.clone());
        for of in self.allocators.iter_mut().filter(|of| of.path == path) {
            let functions = of.functions.len();
            of.functions.retain(|function| is_code(function.probed()));
            if of.functions.len() < functions {
                self.blind.push(moved.clone());
                self.has_unseen_allocations = true;
            }
        }
        self.allocators.retain(|of| !of.functions.is_empty());
    }

    /// Leaves out the allocators in these executables, whose code the code of another file may move.
    pub(super) fn leave_programs(&mut self, programs: &[String], mover: &str) {
        self.allocators.retain(|of| !programs.contains(&of.path));
        self.has_unseen_allocations |= !programs.is_empty();
        let why = format!("{MAY_MOVE} (by code of {mover}){WOULD_KILL}");
        self.blind.extend(programs.iter().map(|path| Blind::at(path, why.as_str())));
    }

    /// Leaves allocators to the sampler, and says which of them do not serve the `malloc` that it samples.
    fn leave_allocators(&mut self) {
        for of in std::mem::take(&mut self.allocators) {
            let is_behind = self.behind_malloc.is_empty() || self.behind_malloc.contains(&of.path);
            let why = match of.is_malloc() {
                true if is_behind => continue,
                true => OTHER_MALLOC,
                false => PAST_MALLOC,
            };
            self.has_unseen_allocations |= of.is_malloc();
            self.blind.push(Blind::from(format!("{}: {why}", of.title())));
        }
    }

    /// Leaves nothing but files that sample by themselves. A process without is not seen, whatever else could not be.
    pub(super) fn only_samplers(&mut self) {
        if self.samplers.is_empty() {
            self.allocators.clear();
            self.blind = vec![NOT_PRELOADED.into()];
            return;
        }
        self.leave_allocators();
    }

    /// The allocator of a process that has only one.
    pub(super) fn only(&self) -> Option<InForce> {
        match self.allocators.as_slice() {
            [one] => Some(InForce { name: one.name.clone(), path: one.path.clone() }),
            _ => None,
        }
    }

    pub(super) fn shorten(&mut self) {
        if let Some(more) = self.blind.len().checked_sub(BLIND_LINES).filter(|&more| more > 0) {
            self.blind.truncate(BLIND_LINES);
            self.blind.push(format!("and {more} more files").into());
        }
    }
}
