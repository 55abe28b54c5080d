//! `sampler profile`: one profile in one format.

use crate::args::{Format, ProfileVerb};
use crate::connect::{self, Address};
use crate::{output, page};
use anyhow::{Result, bail};
use sampler_common::encode::{
    Encode, folded::Folded, jeprof::Jeprof, json::Json, pprof::Pprof, text::Text,
};
use sampler_daemon::rpc::convert::from_wire;

pub(crate) async fn run(address: &Address, verb: ProfileVerb, json: bool) -> Result<()> {
    let format = verb.format(json);
    let file = verb.output.as_deref().filter(|path| path.as_os_str() != "-");
    if format == Format::Pprof && file.is_none() && page::is_terminal() {
        bail!("pprof is binary and standard output is a terminal (give -o FILE or pipe it)");
    }
    // The table sums functions over every stack, so that they are cut here and not by samplerd.
    let top = if format == Format::Text { None } else { verb.filter.top };
    let mut client = connect::client(address).await?;
    let answer = client.get_profile(verb.filter.request(top)).await;
    let profile = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let profile = connect::check(address, from_wire(profile))?;

    let rows = verb.filter.top.map(|top| top as usize);
    let text = Text {
        width: page::width(),
        color: file.is_none() && page::color(),
        rows: rows.unwrap_or(Text::DEFAULT_ROWS),
        stacks: rows.unwrap_or(Text::DEFAULT_STACKS),
    };
    let encoder: &dyn Encode = match format {
        Format::Text => &text,
        Format::Folded => &Folded,
        Format::Pprof => &Pprof,
        Format::Jeprof => &Jeprof,
        Format::Json => &Json,
    };
    let mut contents = Vec::new();
    encoder.encode(&profile, &mut contents)?;
    match file {
        Some(path) => output::write_file(path, &contents),
        None => output::print(&contents),
    }
}
