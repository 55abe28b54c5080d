//! What the mock answers about many processes: one that runs and holds memory, some that are blind,
//! 300 that have exited.

use sampler_daemon::rpc::v1::*;

/// Exited processes, of three commands.
pub(crate) const EXITED: u64 = 300;

/// The list, folded or grouped as asked.
pub(crate) fn answer(request: &ListProcessesRequest, first: Process) -> ListProcessesResponse {
    let first = Process {
        memory: Some(Memory {
            rss_bytes: 220_200_960,
            heap_bytes: 188_743_680,
            ..Memory::default()
        }),
        cgroup: "/system.slice/kvstore.service".into(),
        container: "c0ffee".into(),
        started_unix_ns: 5,
        ..first
    };
    let python = |pid| Process {
        pid,
        comm: "python3".into(),
        state: "running".into(),
        attached_unix_ns: u64::from(pid),
        exact: Some(Exact { alloc_objects: 1, alloc_space: 4096 }),
        blind_spots: vec!["arenas are mapped, not allocated".into()],
        ..Process::default()
    };
    let exited = |number: u64| Process {
        pid: 10_000 + number as u32,
        comm: ["cc1plus", "as", "evil\u{1b}[2J name"][number as usize % 3].into(),
        state: "exited".into(),
        ..Process::default()
    };
    let mut processes = vec![first.clone()];
    processes.extend((4200..4205).map(python));
    let group = |key: &str, processes, running| ProcessGroup {
        key: key.into(),
        processes,
        running,
        pids: vec![1],
        exact: Some(Exact { alloc_objects: processes, alloc_space: processes << 20 }),
        totals: first.totals.clone(),
        samples: processes,
        memory: (running > 0).then_some(Memory { rss_bytes: 1 << 30, ..Memory::default() }),
        newest_unix_ns: processes,
        sources: vec![],
        cost: None,
    };
    let groups = match (request.group_by.as_str(), request.fold_exited) {
        ("", true) => vec![group("cc1plus", EXITED - 1, 0), group("", 1, 0)],
        ("", false) => {
            processes.extend((0..EXITED).map(exited));
            vec![]
        }
        (_, _) => vec![group("a", 4, 4), group(&"/x".repeat(60), 300, 1)],
    };
    if !request.group_by.is_empty() {
        processes.clear();
    }
    if let Some(ProcessSelector { comms, .. }) = &request.selector
        && !comms.is_empty()
    {
        processes.retain(|process| comms.contains(&process.comm));
    }
    ListProcessesResponse { processes, groups, ..ListProcessesResponse::default() }
}
