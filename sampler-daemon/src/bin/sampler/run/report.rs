//! The profile at the end of a run.

use super::args::RunVerb;
use crate::args::Format;
use crate::connect::{self, Address};
use crate::{output, page};
use anyhow::{Context as _, Result};
use sampler_common::encode::{
    Encode, folded::Folded, jeprof::Jeprof, json::Json, pprof::Pprof, text::Text,
};
use sampler_common::profile::Kind;
use sampler_daemon::rpc::convert::from_wire;
use sampler_daemon::rpc::v1::sampler_client::SamplerClient;
use std::io::{IsTerminal as _, Write as _};
use tonic::transport::Channel;

/// Asks for what `verb` wants and writes it where it is wanted.
pub(super) async fn write(
    client: &mut SamplerClient<Channel>,
    address: &Address,
    verb: &RunVerb,
    json: bool,
) -> Result<()> {
    let format = verb.format(json);
    // The table sums functions over every stack, so that they are cut here and not by samplerd.
    let top = if format == Format::Text { None } else { verb.top };
    let rows = verb.top.map(|top| top as usize);
    let text = Text {
        width: page::width(),
        color: verb.file().is_none() && color(),
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
    for (index, kind) in verb.kinds(json).into_iter().enumerate() {
        let answer = client.get_profile(verb.request(kind, top)).await;
        let profile = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
        let profile = connect::check(address, from_wire(profile))?;
        let nothing = kind == Kind::Live && profile.stacks.is_empty();
        if index > 0 {
            contents.push(b'\n');
        }
        if format == Format::Text && kind == Kind::Live && verb.kinds.is_empty() {
            contents.extend_from_slice(if nothing {
                b"Nothing sampled was still held at the end.\n"
            } else {
                b"Still held at the end:\n"
            });
            if nothing {
                continue;
            }
        }
        encoder.encode(&profile, &mut contents)?;
    }
    match verb.file() {
        Some(path) => output::write_file(path, &contents),
        None => std::io::stderr().lock().write_all(&contents).context("write standard error"),
    }
}

/// Whether to emphasize on standard error.
fn color() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stderr().is_terminal() && !unwanted && !dumb
}
