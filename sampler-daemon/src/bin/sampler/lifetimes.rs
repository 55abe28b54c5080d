//! `sampler lifetimes`: how long memory is held, by stack.

use crate::args::LifetimesVerb;
use crate::connect::{self, Address};
use crate::{output, page, progress};
use anyhow::Result;
use sampler_common::encode::lifetimes::json;
use sampler_common::encode::text::lifetimes::lifetimes;
use sampler_daemon::rpc::convert::lifetimes_from_wire;
use sampler_daemon::rpc::v1::GetLifetimesRequest;

/// Default number of stacks in text.
const DEFAULT_TOP: u32 = 20;

pub(crate) async fn run(address: &Address, verb: LifetimesVerb, as_json: bool) -> Result<()> {
    let default = if as_json { 0 } else { DEFAULT_TOP };
    let request = GetLifetimesRequest {
        selector: verb.select.without_pids(),
        pids: verb.select.pids,
        confidence: verb.confidence.level(),
        top: verb.top.unwrap_or(default),
    };
    let mut client = connect::client(address).await?;
    let answer = progress::waiting(progress::PROFILE, client.get_lifetimes(request)).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let answer = connect::check(address, lifetimes_from_wire(answer))?;
    let text = match as_json {
        true => format!("{}\n", json(&answer)),
        false => lifetimes(&answer, page::width()),
    };
    output::print(text.as_bytes())
}
