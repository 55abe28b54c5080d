//! The result of a search for allocators in a process, and which of its functions are probed.

use super::allocator::{Allocator, Function};
use super::code::patched::Patched;
use super::process::injected;
use super::process::preloaded::Preloaded;
use super::usdt::Usdt;
use sampler_common::note::BlindSpot;
use sampler_common::source::SampleSource;
use std::sync::Arc;

/// Most lines about the blind spots of one process.
pub(super) const MAX_BLIND_SPOTS: usize = 16;

/// Reported about a process in which no allocator was found.
pub const NONE_MAPPED: &str = "no allocator is mapped (yet): none of its allocations are seen";

/// With `--samplers-only`: reported about a process that does not sample itself.
const NOT_PRELOADED: &str = "does not sample by itself (--samplers-only): none of its allocations are seen; the preloaded \
     library does not enter static and setuid programs";

/// If the in-process sampler samples `malloc`: reported about an allocator that programs call by
/// names other than `malloc`.
const PAST_MALLOC: &str = "is called past malloc, and the in-process sampler does not sample its functions: what it gives out is not seen (--inject samples them if the program has symbols; uprobes see them: leave --inject and the preloaded library out, or give samplerd --no-usdt)";

/// If a sampler samples the `malloc` of another file: reported about an allocator that defines
/// `malloc`.
const OTHER_MALLOC: &str = "is not the malloc that the sampler samples: what the program allocates from it by its address (dlopen, dlsym) is not seen";

/// Reported about a program that may move its code, with the probes in it ([`super::code::moving`]).
pub(super) const MAY_MOVE: &str = "may move its code to anonymous memory";
pub(super) const WOULD_KILL: &str = ", where a probe would kill it: allocations that it serves are not seen (--probe-executables all: at that risk)";
const MOVED: &str =
    "has moved its code to anonymous memory: allocations that it serves are not seen";

/// What a search for allocators has found in a process.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Allocators that can be probed.
    pub allocators: Vec<Allocator>,
    /// What cannot be seen in the process, and why, one line each.
    pub blind_spots: Vec<BlindSpot>,
    /// Whether one of the reasons in `blind_spots` means that allocations of the process go unseen.
    pub has_unseen_allocations: bool,
    /// Files that sample their allocations themselves. The malloc family of such a file is not
    /// among the allocators.
    pub samplers: Vec<SelfSampler>,
    /// Whether one of the samplers is the process's own `malloc`. Then other files' allocators only
    /// serve that `malloc`.
    pub is_sampled: bool,
    /// The allocator whose `malloc` the process uses, if known.
    pub in_force: Option<InForce>,
    /// Paths of the files that may serve that `malloc`; empty if unknown.
    pub behind_malloc: Vec<String>,
    /// Functions whose code in memory is not their file's. They are not probed, and `blind_spots`
    /// reports them.
    pub patched: Vec<Patched>,
    /// Whether one of the files is a program that Go's linker made.
    pub is_go_program: bool,
    /// Whether a large file is still being searched. The process should be inspected again soon.
    pub is_unfinished: bool,
}

/// A file that samples its allocations itself (see [`super::usdt`]).
#[derive(Clone, Debug)]
pub struct SelfSampler {
    /// The file, with its probes as functions.
    pub allocator: Allocator,
    /// The file's probes.
    pub usdt: Arc<Usdt>,
    /// The file's settings, if it is our own library.
    pub preloaded: Option<Preloaded>,
}

impl SelfSampler {
    /// The source of its samples.
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
    /// Name of the allocator, empty if unknown.
    pub name: String,
    /// Path in the process.
    pub path: String,
}

impl Discovery {
    /// The files that can be probed, each with its functions.
    pub fn files(&self) -> impl Iterator<Item = &Allocator> {
        self.allocators.iter().chain(self.samplers.iter().map(|of| &of.allocator))
    }

    /// Whether the file with this device and inode is among the files that can be probed.
    pub fn has(&self, identity: (u64, u64)) -> bool {
        self.files().any(|of| of.identity == identity)
    }

    /// Sets whether a file that samples itself is the process's own `malloc`, because it comes
    /// before every other file in the loader's order. Then the other files' allocators are not
    /// probed. If they serve that `malloc`, probes would count twice. If they have a heap of their
    /// own, its allocations are not seen.
    pub(super) fn prefer_samplers(&mut self) {
        let in_force = self.in_force.as_ref();
        let is_own = |of: &SelfSampler| in_force.is_some_and(|it| it.path == of.allocator.path);
        self.is_sampled |= self.samplers.iter().any(|of| of.usdt.defines_malloc && is_own(of));
        if self.is_sampled {
            self.exclude_allocators(&[]);
        }
    }

    /// Records that the hooks of an injected image are installed. The image samples the
    /// allocations of its `malloc`, and of the functions `past_malloc`, so no probe counts them as
    /// well.
    pub(super) fn prefer_injected(&mut self, past_malloc: &[&str]) {
        self.is_sampled = true;
        self.exclude_allocators(past_malloc);
    }

    /// Leaves out the functions that are patched in the process.
    pub fn exclude_patched(&mut self, pid: u32, is: impl Fn(&Allocator, &Function) -> bool) {
        let samplers = self.samplers.iter_mut().map(|of| &mut of.allocator);
        for allocator in self.allocators.iter_mut().chain(samplers) {
            if let Some(patched) = Patched::find(pid, allocator, |of| is(allocator, of)) {
                patched.leave_out(allocator);
                self.patched.push(patched);
            }
        }
        self.allocators.retain(|of| !of.functions.is_empty());
        self.samplers.retain(|of| !of.allocator.functions.is_empty());
        self.blind_spots.splice(0..0, self.patched.iter().map(|of| of.blind_spot(pid)));
    }

    /// Leaves out functions of the file at this path whose code the process has moved. `is_code`:
    /// whether an offset of the file is still mapped as code.
    pub(super) fn exclude_moved(&mut self, path: &str, is_code: impl Fn(u64) -> bool) {
        let moved = BlindSpot::at(path, MOVED);
        // This line replaces the line that the file may move its code.
        let may = |of: &&mut BlindSpot| of.place == path && of.why.starts_with(MAY_MOVE);
        self.blind_spots.iter_mut().filter(may).for_each(|of| *of = moved.clone());
        for of in self.allocators.iter_mut().filter(|of| of.path == path) {
            let functions = of.functions.len();
            of.functions.retain(|function| is_code(function.probed()));
            if of.functions.len() < functions {
                self.blind_spots.push(moved.clone());
                self.has_unseen_allocations = true;
            }
        }
        self.allocators.retain(|of| !of.functions.is_empty());
    }

    /// Leaves out the allocators in these executables, because code of the file `mover` may move
    /// the executables' code.
    pub(super) fn exclude_programs(&mut self, programs: &[String], mover: &str) {
        self.allocators.retain(|of| !programs.contains(&of.path));
        self.has_unseen_allocations |= !programs.is_empty();
        let why = format!("{MAY_MOVE} (by code of {mover}){WOULD_KILL}");
        self.blind_spots.extend(programs.iter().map(|path| BlindSpot::at(path, why.as_str())));
    }

    /// Leaves all allocators to the sampler, and reports those that it does not sample: they neither
    /// serve the `malloc` that it samples, nor are their own functions `hooked`.
    fn exclude_allocators(&mut self, hooked: &[&str]) {
        for of in std::mem::take(&mut self.allocators) {
            let is_behind = self.behind_malloc.is_empty() || self.behind_malloc.contains(&of.path);
            let why = match of.is_malloc() {
                true if is_behind => continue,
                true => OTHER_MALLOC,
                false if of.is_hooked(hooked) => continue,
                false => PAST_MALLOC,
            };
            self.has_unseen_allocations = true;
            self.blind_spots.push(BlindSpot::from(format!("{}: {why}", of.title())));
        }
    }

    /// Leaves only files that sample themselves. For a process without such a file, that is the
    /// only line of `blind_spots`.
    pub(super) fn only_samplers(&mut self) {
        if self.samplers.is_empty() {
            self.allocators.clear();
            self.blind_spots = vec![NOT_PRELOADED.into()];
            return;
        }
        self.exclude_allocators(&[]);
    }

    /// The allocator of a process that has only one.
    pub(super) fn only(&self) -> Option<InForce> {
        match self.allocators.as_slice() {
            [one] => Some(InForce { name: one.name.clone(), path: one.path.clone() }),
            _ => None,
        }
    }

    pub(super) fn shorten(&mut self) {
        if let Some(more) =
            self.blind_spots.len().checked_sub(MAX_BLIND_SPOTS).filter(|&more| more > 0)
        {
            self.blind_spots.truncate(MAX_BLIND_SPOTS);
            self.blind_spots.push(format!("and {more} more files").into());
        }
    }
}
