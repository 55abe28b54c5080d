//! The worker's configuration.

use super::library::injections::Injecting;
use super::processes::exclude::Exclusion;
use super::records::held_at_exit::AtExit;
use crate::bpf::Settings;
use crate::inspect::allocator::spec::Spec;
use crate::inspect::code::moving::Executables;
use crate::store::Sampling;
use crate::unwind::NativeFrames;
use sampler_common::pressure::Limits;
use sampler_common::windows::Budget;

/// Which processes are profiled, and with which links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// A few given processes, each with links of its own.
    Pids,
    /// Given processes with shared links. Every process that maps a link's file pays for the link,
    /// so many processes must not have one each.
    PidsSharedLinks,
    /// All processes that are not excluded, as they come and go, with shared links.
    AllProcesses,
    /// Given processes and all their descendants, with shared links.
    Descendants,
}

/// How to profile.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which processes.
    pub attach_mode: AttachMode,
    /// The eBPF program's constants.
    pub settings: Settings,
    /// How allocations are sampled.
    pub sampling: Sampling,
    /// Processes that are not profiled when all processes, or a tree, are.
    pub exclude: Vec<Exclusion>,
    /// The user's specification of allocators.
    pub allocators: &'static Spec,
    /// Which allocators in executables are probed.
    pub executables: Executables,
    /// What becomes of the interpreter's frames that Python frames replace.
    pub native: NativeFrames,
    /// What becomes of the blocks that a process holds when it exits.
    pub at_exit: AtExit,
    /// Limits of samples per second; above them intervals rise.
    pub limits: Limits,
    /// The budget of windows; `None`: processes are probed all the time.
    pub windows: Option<Budget>,
    /// The share of its CPU time that the samples of an injected process may cost; `None`: only
    /// [`Config::limits`] apply.
    pub max_overhead: Option<Budget>,
    /// Whether only files are probed that sample their own allocations.
    pub samplers_only: bool,
    /// Whether and how the in-process sampler is injected into newly appeared processes.
    pub injecting: Option<Injecting>,
}

impl Config {
    /// Whether processes join the profile by themselves.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.attach_mode, AttachMode::AllProcesses | AttachMode::Descendants)
    }

    /// Whether a tree is profiled.
    pub(super) fn is_tree(&self) -> bool {
        self.attach_mode == AttachMode::Descendants
    }

    /// Whether each process has links of its own. With windows every process has: no process pays
    /// for another's windows.
    pub(super) fn has_own_links(&self) -> bool {
        self.attach_mode == AttachMode::Pids || self.windows.is_some()
    }

    /// Whether held memory is unknown: frees are not followed, or only windows are seen.
    pub(super) fn is_held_unknown(&self) -> bool {
        !self.settings.track_live || self.windows.is_some()
    }
}
