//! Options of `sampler ps`.

use super::Select;
use clap::{Args as Group, ValueEnum};

#[derive(Group)]
pub(crate) struct PsVerb {
    #[command(flatten)]
    pub(crate) select: Select,
    /// Sum processes that have this in common
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,
    /// What comes first
    #[arg(long, value_enum, default_value = "held")]
    pub(crate) sort: Sort,
    /// List exited processes one by one instead of by command name
    #[arg(long, conflicts_with = "by")]
    pub(crate) exited: bool,
}

/// What processes are summed by.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Process id
    Pid,
    /// Command name
    Comm,
    /// Executable
    Exe,
    /// Control group
    Cgroup,
    /// Container
    Container,
}

impl By {
    /// Returns the name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            By::Pid => "pid",
            By::Comm => "comm",
            By::Exe => "exe",
            By::Cgroup => "cgroup",
            By::Container => "container",
        }
    }

    /// Returns the name of processes that have none in this grouping.
    pub(crate) fn nameless(self) -> &'static str {
        match self {
            By::Container => "(none known)",
            _ => "(not known)",
        }
    }
}

/// The order of a list.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Most bytes held
    Held,
    /// Most bytes allocated
    Allocated,
    /// Most resident memory
    Rss,
    /// Most samples
    Samples,
    /// The last to come
    Newest,
    /// Smallest pid or first name
    Name,
}
