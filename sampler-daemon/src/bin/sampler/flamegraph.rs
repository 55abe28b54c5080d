//! `sampler flamegraph`: an SVG of what stacks allocate or hold, in bytes, objects or bytes ×
//! seconds.

use crate::args::{FlamegraphVerb, MeasureName};
use crate::connect::{self, Address};
use crate::encoded::RowLimits;
use crate::{output, page};
use anyhow::{Result, bail};
use sampler_common::encode::svg::{FlameGraph, space_time};
use sampler_common::encode::{Encode, Format, Measure};
use sampler_daemon::rpc::convert::lifetimes_from_wire;
use sampler_daemon::rpc::v1::GetLifetimesRequest;
use std::path::Path;

pub(crate) async fn run(address: &Address, verb: FlamegraphVerb) -> Result<()> {
    let file = file(verb.output.as_deref())?;
    let mut contents = Vec::new();
    match verb.measure {
        MeasureName::Bytes => drawn(address, &verb, Measure::Space, &mut contents).await?,
        MeasureName::Objects => drawn(address, &verb, Measure::Objects, &mut contents).await?,
        MeasureName::ByteSeconds => held(address, &verb, &mut contents).await?,
    }
    written(file, &contents)
}

/// Returns the file for a picture; `None` is standard output.
///
/// # Errors
/// If standard output is a terminal, which cannot show a picture.
pub(crate) fn file(given: Option<&Path>) -> Result<Option<&Path>> {
    let file = given.filter(|path| path.as_os_str() != "-");
    if file.is_none() && page::is_terminal() {
        bail!("svg is a picture and standard output is a terminal (give -o FILE or pipe it)");
    }
    Ok(file)
}

/// Writes to the file, or to standard output.
pub(crate) fn written(file: Option<&Path>, contents: &[u8]) -> Result<()> {
    match file {
        Some(path) => output::write_file(path, contents),
        None => output::print(contents),
    }
}

async fn drawn(
    address: &Address,
    verb: &FlamegraphVerb,
    measure: Measure,
    contents: &mut Vec<u8>,
) -> Result<()> {
    let mut client = connect::client(address).await?;
    let limits = RowLimits::of(Format::Svg, verb.filter.top, false).with(&verb.frames);
    let answer = client.get_profile(limits.request(verb.filter.request(None))).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let profile = limits.answer(address, answer)?;
    Ok(FlameGraph { measure }.encode(&profile, contents)?)
}

async fn held(address: &Address, verb: &FlamegraphVerb, contents: &mut Vec<u8>) -> Result<()> {
    let request = GetLifetimesRequest {
        selector: verb.filter.select.without_pids(),
        pids: verb.filter.select.pids.clone(),
        confidence: verb.filter.confidence.level(),
        top: verb.filter.top.unwrap_or(0),
    };
    let mut client = connect::client(address).await?;
    let answer = client.get_lifetimes(request).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let lifetimes = connect::check(address, lifetimes_from_wire(answer))?;
    Ok(space_time(&lifetimes, contents)?)
}
