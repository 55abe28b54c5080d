//! How to profile, as whoever starts the worker says it.

use super::exclude::Exclusion;
use super::held::AtExit;
use super::injections::Injecting;
use crate::bpf::Settings;
use crate::store::Sampling;
use crate::target::moving::Executables;
use crate::target::spec::Spec;
use sampler_common::pressure::Limits;
use sampler_common::windows::Budget;

/// Which processes are profiled, and by whose links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A few given ones, each by links of its own.
    Listed,
    /// Given ones, by links that all share: a link costs everyone who maps its file, so that many must not have one each.
    Shared,
    /// All that are not excluded, as they come and go, by links that all share.
    Everyone,
    /// Given ones and every process that they fork, and those in turn, by links that all share.
    Tree,
}

/// How to profile.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which processes.
    pub reach: Reach,
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
