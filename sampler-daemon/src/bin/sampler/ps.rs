//! `sampler ps`: the processes that are or were profiled.

use crate::connect::{self, Address};
use crate::{output, page};
use anyhow::Result;
use sampler_common::encode::text::layout::{end, left, right, wrapped};
use sampler_common::encode::text::plus_minus;
use sampler_common::encode::{json, name};
use sampler_common::estimate::Confidence;
use sampler_common::profile::Quantities;
use sampler_common::units::{exact_bytes, grouped, human_bytes, human_count};
use sampler_daemon::rpc::convert::quantities_from_wire;
use sampler_daemon::rpc::v1::{Exact, ListProcessesRequest, Process};
use serde_json::{Value, json};

pub(crate) async fn run(address: &Address, json: bool) -> Result<()> {
    let mut client = connect::client(address).await?;
    let answer = client.list_processes(ListProcessesRequest {}).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let mut processes = Vec::new();
    for process in answer.processes {
        let totals = process.totals.as_ref();
        let totals = totals.map(|of| quantities_from_wire(of, Confidence::DEFAULT)).transpose();
        let totals = connect::check(address, totals)?;
        processes.push((process, totals));
    }
    if json {
        let list: Vec<Value> =
            processes.iter().map(|(process, totals)| object(process, totals)).collect();
        return output::print(format!("{}\n", json!({ "processes": list })).as_bytes());
    }
    output::print(text(&processes, page::width()).as_bytes())
}

fn object(process: &Process, totals: &Option<Quantities>) -> Value {
    let exact = process.exact.unwrap_or_default();
    json!({
        "pid": process.pid,
        "comm": process.comm,
        "exe": process.exe,
        "state": process.state,
        "attached_unix_ns": process.attached_unix_ns,
        "exited_unix_ns": process.exited_unix_ns,
        "images": process.images,
        "interval_bytes": process.interval_bytes,
        "exact": { "alloc_objects": exact.alloc_objects, "alloc_space": exact.alloc_space },
        "totals": totals.as_ref().map(json::quantities),
        "samples": process.samples,
        "free_calls": process.free_calls.as_ref().map(crate::status::count),
        "allocators": process.allocators,
        "sampling": process.sampling.as_ref().map(crate::status::sampling),
        "blind": process.blind,
    })
}

fn text(processes: &[(Process, Option<Quantities>)], width: usize) -> String {
    if processes.is_empty() {
        return "no process is profiled\n".to_owned();
    }
    let columns = ["PID", "STATE", "ALLOCATED", "HELD", "±", "SAMPLES", "INTERVAL", "COMMAND"];
    let mut out = row(columns.map(str::to_owned), width);
    for (process, totals) in processes {
        let held = totals.as_ref().map(|totals| &totals.inuse_space.estimate);
        let Exact { alloc_space, .. } = process.exact.unwrap_or_default();
        let samples = process.samples;
        out += &row(
            [
                process.pid.to_string(),
                name::shown(&process.state).into_owned(),
                human_bytes(alloc_space as f64),
                held.map(|held| human_bytes(held.value)).unwrap_or_default(),
                held.map(plus_minus).unwrap_or_default(),
                if samples < 1_000_000 { grouped(samples) } else { human_count(samples as f64) },
                exact_bytes(process.interval_bytes),
                name::shown(&process.comm).into_owned(),
            ],
            width,
        );
        for blind in &process.blind {
            let lines = wrapped(&format!("blind: {}", name::shown(blind)), width.saturating_sub(9));
            out.extend(lines.iter().map(|line| format!("         {line}\n")));
        }
    }
    out
}

fn row(
    [pid, state, allocated, held, interval, samples, per, command]: [String; 8],
    width: usize,
) -> String {
    let numbers = [
        right(&pid, 7),
        left(&state, 8),
        right(&allocated, 9),
        right(&held, 8),
        right(&interval, 5),
        right(&samples, 7),
        right(&per, 9),
    ]
    .join(" ");
    let room = width.saturating_sub(numbers.chars().count() + 2).max(8);
    format!("{}\n", format!("{numbers}  {}", end(&command, room)).trim_end())
}
