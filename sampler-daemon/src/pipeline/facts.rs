//! What is read of a process while it is there, and kept after it has gone.

use crate::inspect::cgroup::{self, Cgroup};
use crate::inspect::process::{self, Process};
use crate::inspect::{memory, processor};
use crate::store::{ProcessIdentity, ProcessRecord};

/// Who a process is, whoever may have its pid now.
pub(super) struct Facts {
    comm: String,
    exe: String,
    cgroup: Cgroup,
}

impl Facts {
    /// Of the process that has `pid`; empty if there is none.
    pub(super) fn of(pid: u32) -> Facts {
        Facts { comm: process::comm(pid), exe: process::exe(pid), cgroup: cgroup::read(pid) }
    }

    pub(super) fn who(&self, pid: u32) -> ProcessIdentity<'_> {
        let Facts { comm, exe, cgroup } = self;
        ProcessIdentity { pid, comm, exe, cgroup: &cgroup.path, container: &cgroup.container }
    }
}

/// Reads how much CPU time a process has used.
pub(super) fn look(record: &mut ProcessRecord, process: &Process) {
    if let Some(now_ns) = processor::processor_ns(process.pid, process.start_ticks) {
        record.spending.look(now_ns);
    }
}

/// Reads who a process is. What cannot be read any more stays as it was.
pub(super) fn read(record: &mut ProcessRecord, process: &Process) {
    let facts = Facts::of(process.pid);
    // Read of our process only if that is still there.
    if !process.is_running() {
        return;
    }
    record.anonymous_bytes = memory::anonymous_bytes(process.pid, process.start_ticks);
    record.comm = facts.comm;
    record.exe = facts.exe;
    record.origin.cgroup = facts.cgroup.path;
    record.origin.container = facts.cgroup.container;
    record.origin.started.get_or_insert_with(|| process.started());
    look(record, process);
}
