//! The profile at the end of a run.

use super::args::RunVerb;
use crate::connect::{self, Address, Client};
use crate::encoded::{self, RowLimits};
use crate::{output, page, progress};
use anyhow::{Context as _, Result};
use sampler_common::encode::Format;
use sampler_common::profile::Kind;
use std::io::Write as _;

/// Asks for the profiles of `verb`, and writes them to its output.
pub(super) async fn write(
    client: &mut Client,
    address: &Address,
    verb: &RunVerb,
    json: bool,
) -> Result<()> {
    let format = verb.format(json);
    let limits = RowLimits::of(format, verb.top, verb.stacks);
    let color = verb.file().is_none() && page::color_on(&std::io::stderr());
    let mut contents = Vec::new();
    for (index, kind) in verb.kinds(json).into_iter().enumerate() {
        let answer = client.get_profile(limits.request(verb.request(kind)));
        let answer = progress::waiting(progress::PROFILE, answer).await;
        let profile = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
        let profile = limits.answer(address, profile)?;
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
        encoded::append(&profile, format, limits, color, &mut contents)?;
    }
    match verb.file() {
        Some(path) => output::write_file(path, &contents),
        None => std::io::stderr().lock().write_all(&contents).context("write standard error"),
    }
}
