//! `sampler set`: changes the sampling interval while running.

use crate::args::SetVerb;
use crate::connect::{self, Address};
use crate::output;
use anyhow::Result;
use sampler_common::units::exact_bytes;
use sampler_daemon::rpc::v1::SetSamplingRequest;
use serde_json::json;

pub(crate) async fn run(address: &Address, verb: SetVerb, json: bool) -> Result<()> {
    let request = SetSamplingRequest { pids: verb.pids, interval_bytes: verb.interval };
    let mut client = connect::client(address).await?;
    let answer = client.set_sampling(request).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    if json {
        let object = json!({ "intervals": crate::status::intervals(&answer.intervals) });
        return output::print(format!("{object}\n").as_bytes());
    }
    let line = |pid, bytes| format!("pid {pid}: one sample per {}\n", exact_bytes(bytes));
    let mut text: String =
        answer.intervals.iter().map(|of| line(of.pid, of.interval_bytes)).collect();
    if text.is_empty() {
        text.push_str("no process is profiled\n");
    }
    output::print(text.as_bytes())
}
