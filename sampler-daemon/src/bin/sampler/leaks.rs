//! `sampler leaks`: stacks whose held bytes keep growing.

use crate::args::LeaksVerb;
use crate::connect::{self, Address};
use crate::{output, page};
use anyhow::Result;
use sampler_common::encode::leaks::{object, text};
use sampler_daemon::rpc::convert::leaks_from_wire;
use sampler_daemon::rpc::v1::GetLeaksRequest;

/// Default number of stacks in text.
const DEFAULT_TOP: u32 = 10;

pub(crate) async fn run(address: &Address, verb: LeaksVerb, json: bool) -> Result<()> {
    let top = verb.top.unwrap_or(if json { 0 } else { DEFAULT_TOP });
    let request = GetLeaksRequest {
        selector: Some(verb.select.selector()),
        over_ns: verb.over.map_or(0, |over| over.as_nanos() as u64),
        confidence: verb.confidence.level(),
        top,
    };
    let mut client = connect::client(address).await?;
    let answer = client.get_leaks(request).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let leaks = connect::check(address, leaks_from_wire(answer))?;
    let text = match json {
        true => format!("{}\n", object(&leaks)),
        false => text(&leaks, page::width(), top as usize),
    };
    output::print(text.as_bytes())
}
