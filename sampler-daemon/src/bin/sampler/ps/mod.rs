//! `sampler ps`: the processes that are or were profiled, or groups of them.

mod blind_spots;
mod costs;
mod entry;
mod text;

use crate::args::PsVerb;
use crate::connect::{self, Address};
use crate::status::cost;
use crate::{output, page, source};
use anyhow::Result;
pub(crate) use blind_spots::blind_spots;
use entry::{Entry, sorted};
use sampler_common::encode::json;
use sampler_common::encode::name::shown;
use sampler_common::estimate::Confidence;
use sampler_common::profile::Quantities;
use sampler_daemon::rpc::convert::quantities_from_wire;
use sampler_daemon::rpc::v1::{
    self, Exact, ListProcessesRequest, MappedBy, Mappings, Process, ProcessGroup,
};
use serde_json::{Value, json};

pub(crate) async fn run(address: &Address, verb: PsVerb, json: bool) -> Result<()> {
    let selector = Some(verb.select.selector());
    let request = ListProcessesRequest {
        selector: selector.filter(|selector| *selector != v1::ProcessSelector::default()),
        group_by: verb.by.map_or("", |by| by.name()).to_owned(),
        // JSON output lists every exited process.
        fold_exited: !json && !verb.exited && verb.by.is_none(),
    };
    let mut client = connect::client(address).await?;
    let answer = client.list_processes(request).await;
    let answer = answer.map_err(|status| connect::failed(address, &status))?.into_inner();
    let processes = checked(address, answer.processes, |process| process.totals.as_ref())?;
    let groups = checked(address, answer.groups, |group| group.totals.as_ref())?;
    let costs = costs::costs(address, processes.iter().map(|(process, _)| process))?;
    if json {
        let processes: Vec<Value> =
            processes.iter().map(|(of, totals)| object(of, totals)).collect();
        let mut list = json!({ "processes": processes });
        if let Some(by) = verb.by {
            list["by"] = by.name().into();
            let groups = groups.iter().map(|(of, totals)| group(address, of, totals));
            list["groups"] = groups.collect::<Result<Value>>()?;
        }
        return output::print(format!("{list}\n").as_bytes());
    }
    let (running, exited): (Vec<_>, Vec<_>) =
        processes.iter().partition(|(process, _)| process.state == "running");
    let of_processes = |list: Vec<&(Process, Option<Quantities>)>| {
        sorted(list.into_iter().map(|(of, totals)| Entry::of_process(of, totals)), verb.sort)
    };
    let of_groups = groups.iter().map(|(of, totals)| Entry::of_group(of, totals));
    let sources = processes.iter().filter_map(|(of, _)| Some((of.sampling.as_ref()?, called(of))));
    let page = text::Listing {
        sources: source::text(address, sources)?,
        by: verb.by,
        running: of_processes(running),
        exited: of_processes(exited),
        groups: sorted(of_groups, verb.sort),
        costs,
        raised: crate::status::raised(processes.iter().filter_map(|(of, _)| of.sampling.as_ref())),
        blind_spots: blind_spots(processes.iter().map(|(process, _)| process)),
    };
    output::print(page.text(page::width()).as_bytes())
}

/// Names a process by its command and its pid.
fn called(process: &Process) -> String {
    match process.exited_count {
        0 => format!("{} {}", shown(&process.comm), process.pid),
        exited_count => format!("{} × {exited_count}", shown(&process.comm)),
    }
}

/// Returns each element with its totals, which are checked.
fn checked<T>(
    address: &Address,
    list: Vec<T>,
    totals: impl Fn(&T) -> Option<&v1::Quantities>,
) -> Result<Vec<(T, Option<Quantities>)>> {
    let each = list.into_iter().map(|of| {
        let totals = totals(&of).map(|of| quantities_from_wire(of, Confidence::DEFAULT));
        let totals = connect::check(address, totals.transpose())?;
        Ok((of, totals))
    });
    each.collect()
}

fn object(process: &Process, totals: &Option<Quantities>) -> Value {
    let some = |number: u64| Some(number).filter(|number| *number > 0);
    json!({
        "pid": process.pid,
        "comm": process.comm,
        "exe": process.exe,
        "state": process.state,
        "attached_unix_ns": process.attached_unix_ns,
        "exited_unix_ns": process.exited_unix_ns,
        "images": process.images,
        "interval_bytes": process.interval_bytes,
        "exact": process.exact.as_ref().map(|of| exact(Some(of))),
        "samples_itself": process.samples_itself,
        "sources": process.sampling.as_ref().map(source::names),
        "totals": totals.as_ref().map(json::quantities),
        "samples": process.samples,
        "mappings": process.mappings.as_ref().map(mappings),
        "free_calls": process.free_calls.as_ref().map(crate::status::count),
        "allocators": process.allocators,
        "sampling": process.sampling.as_ref().map(crate::status::sampling),
        "allocator_in_force": process.allocator_in_force,
        "blind": process.blind_spots,
        "folded": process.exited_count,
        "bounds": crate::status::outcomes(&process.bounds),
        "cgroup": process.cgroup,
        "container": process.container,
        "started_unix_ns": some(process.started_unix_ns),
        "memory": process.memory.as_ref().map(memory),
        "cost": cost::object(process.cost.as_ref()),
    })
}

fn group(address: &Address, of: &ProcessGroup, totals: &Option<Quantities>) -> Result<Value> {
    Ok(json!({
        "key": of.key,
        "processes": of.processes,
        "running": of.running,
        "pids": of.pids,
        "exact": of.exact.as_ref().map(|of| exact(Some(of))),
        "totals": totals.as_ref().map(json::quantities),
        "samples": of.samples,
        "memory": of.memory.as_ref().map(memory),
        "newest_unix_ns": of.newest_unix_ns,
        "sources": source::groups(address, of)?,
        "cost": cost::object(of.cost.as_ref()),
    }))
}

fn mappings(of: &Mappings) -> Value {
    let by = |of: Option<MappedBy>| {
        let MappedBy { bytes, calls, held_bytes, held_calls } = of.unwrap_or_default();
        json!({ "bytes": bytes, "calls": calls, "held_bytes": held_bytes, "held_calls": held_calls })
    };
    json!({
        "directly": by(of.directly),
        "by_allocators": by(of.by_allocators),
        "by_unknown": by(of.by_unknown),
    })
}

fn exact(of: Option<&Exact>) -> Value {
    let Exact { alloc_objects, alloc_space } = of.copied().unwrap_or_default();
    json!({ "alloc_objects": alloc_objects, "alloc_space": alloc_space })
}

fn memory(of: &v1::Memory) -> Value {
    json!({
        "rss_bytes": of.rss_bytes,
        "anonymous_bytes": of.anonymous_bytes,
        "heap_bytes": of.heap_bytes,
        "usable": of.usable_ratio.as_ref().map(|ratio| {
            json!({
                "ratio": { "value": ratio.value, "low": ratio.low, "high": ratio.high },
                "samples": of.usable_samples,
                "refused": of.usable_refused,
            })
        }),
    })
}
