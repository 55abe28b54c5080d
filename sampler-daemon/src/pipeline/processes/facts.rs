//! Facts that are read of a process while it exists, and kept after it has ended.

use crate::inspect::process::cgroup::{self, Cgroup};
use crate::inspect::process::environment;
use crate::inspect::process::memory;
use crate::inspect::process::processor;
use crate::inspect::process::{self, Process};
use crate::store::{ProcessIdentity, ProcessRecord};

/// The identity of a process, whichever process has its pid now.
pub(in crate::pipeline) struct Facts {
    user: Option<u32>,
    comm: String,
    exe: String,
    cgroup: Cgroup,
    service: String,
}

impl Facts {
    /// Facts of the process that has `pid`; empty if there is none.
    pub(in crate::pipeline) fn of(pid: u32) -> Facts {
        Facts {
            user: process::user(pid),
            comm: process::comm(pid),
            exe: process::exe(pid),
            cgroup: cgroup::read(pid),
            service: environment::service_name(pid),
        }
    }

    pub(in crate::pipeline) fn who(&self, pid: u32) -> ProcessIdentity<'_> {
        let Facts { comm, exe, cgroup, .. } = self;
        ProcessIdentity { pid, comm, exe, cgroup: &cgroup.path, container: &cgroup.container }
    }
}

/// Reads how much CPU time a process has used.
pub(in crate::pipeline) fn read_cpu_time(record: &mut ProcessRecord, process: &Process) {
    if let Some(now_ns) = processor::processor_ns(process.pid, process.start_ticks) {
        record.spending.note_cpu_time(now_ns);
    }
}

/// Reads the identity of a process. What cannot be read any more stays as it was.
pub(in crate::pipeline) fn read(record: &mut ProcessRecord, process: &Process) {
    let facts = Facts::of(process.pid);
    // The facts are those of our process only if it still exists.
    if !process.is_running() {
        return;
    }
    record.anonymous_bytes = memory::anonymous_bytes(process.pid, process.start_ticks);
    record.user = facts.user.unwrap_or(record.user);
    record.comm = facts.comm;
    record.exe = facts.exe;
    record.origin.cgroup = facts.cgroup.path;
    record.origin.container = facts.cgroup.container;
    record.origin.service = facts.service;
    record.origin.started.get_or_insert_with(|| process.started());
    read_cpu_time(record, process);
}
