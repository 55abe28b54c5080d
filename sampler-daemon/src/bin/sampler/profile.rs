//! `sampler profile`: one profile in one format.

use crate::args::ProfileVerb;
use crate::connect::{self, Address};
use crate::encoded::{self, RowLimits};
use crate::{output, page, progress};
use anyhow::{Result, bail};

pub(crate) async fn run(address: &Address, verb: ProfileVerb, json: bool) -> Result<()> {
    let format = verb.format(json);
    let file = verb.output.as_deref().filter(|path| path.as_os_str() != "-");
    if !format.is_text() && file.is_none() && page::is_terminal() {
        let name = format.name();
        bail!("{name} is binary and standard output is a terminal (give -o FILE or pipe it)");
    }
    let limits = RowLimits::of(format, verb.filter.top, verb.stacks).with(&verb.frames);
    let mut client = connect::client(address).await?;
    let answer = client.get_profile(limits.request(verb.filter.request(None)));
    let answer = progress::waiting(progress::PROFILE, answer).await;
    let profile = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let profile = limits.answer(address, profile)?;

    let mut contents = Vec::new();
    let color = file.is_none() && page::color();
    encoded::append(&profile, format, limits, color, &mut contents)?;
    match file {
        Some(path) => output::write_file(path, &contents),
        None => output::print(&contents),
    }
}
