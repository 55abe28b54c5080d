//! Options of `sampler top`.

use super::{Select, period};
use clap::{Args as Group, ValueEnum};
use sampler_common::profile::Kind;
use std::time::Duration;

#[derive(Group)]
pub(crate) struct TopVerb {
    #[command(flatten)]
    pub(crate) select: Select,
    /// What is shown first
    #[arg(long, value_enum, default_value = "alloc")]
    pub(crate) kind: SampledKind,
    /// Time between looks, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = period)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) period: Duration,
}

/// The kinds that are sampled, so that they change by chance.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum SampledKind {
    /// What is allocated
    Alloc,
    /// What is still held
    Live,
    /// What was held when most was
    Peak,
}

impl From<SampledKind> for Kind {
    fn from(of: SampledKind) -> Kind {
        match of {
            SampledKind::Alloc => Kind::Alloc,
            SampledKind::Live => Kind::Live,
            SampledKind::Peak => Kind::Peak,
        }
    }
}
