//! How to profile, as whoever starts the worker says it.

use super::exclude::Exclusion;
use super::held_at_exit::AtExit;
use super::injections::Injecting;
use crate::bpf::Settings;
use crate::inspect::moving::Executables;
use crate::inspect::spec::Spec;
use crate::store::Sampling;
use crate::unwind::NativeFrames;
use sampler_common::pressure::Limits;
use sampler_common::windows::Budget;

/// Which processes are profiled, and by whose links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// A few given ones, each by links of its own.
    Pids,
    /// Given ones, by links that all share: a link costs everyone who maps its file, so that many must not have one each.
    PidsSharedLinks,
    /// All that are not excluded, as they come and go, by links that all share.
    AllProcesses,
    /// Given ones and every process that they fork, and those in turn, by links that all share.
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
    /// Processes that are not profiled where others are unasked.
    pub exclude: Vec<Exclusion>,
    /// What the user says of allocators.
    pub allocators: &'static Spec,
    /// Which allocators in executables are probed.
    pub executables: Executables,
    /// What becomes of the interpreter's frames that Python frames stand for.
    pub native: NativeFrames,
    /// What becomes of the blocks that a process holds when it exits.
    pub at_exit: AtExit,
    /// Samples that may come in a second; beyond it intervals rise.
    pub limits: Limits,
    /// The budget of windows; `None`: processes are probed all the time.
    pub windows: Option<Budget>,
    /// The share of its CPU time that the samples of an injected process may cost it; `None`: [`Config::limits`] alone hold.
    pub max_overhead: Option<Budget>,
    /// Whether only files are probed that sample their allocations by themselves.
    pub samplers_only: bool,
    /// Whether the in-process sampler is put into processes that come by themselves, and how.
    pub injecting: Option<Injecting>,
}
