//! `sampler completions` and `sampler man`: descriptions of the command line itself. No samplerd is
//! asked.

use crate::args::{Args, CompletionsVerb, ManVerb};
use crate::output;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use sampler_daemon::manual;

pub(crate) fn completions(verb: &CompletionsVerb) -> Result<()> {
    let mut script = Vec::new();
    manual::complete(Args::command(), verb.shell, &mut script).context("make completions")?;
    output::print(&script)
}

pub(crate) fn pages(verb: &ManVerb) -> Result<()> {
    manual::write_pages(Args::command(), "1", &verb.directory)
}
