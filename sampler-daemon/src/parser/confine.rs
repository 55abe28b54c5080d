//! How the parser and other children of samplerd drop their rights ([`Rights`]).
//!
//! The parser keeps a socket, and bounded memory and CPU time. If a file takes the parser over, the
//! file gains no other right, no file system and no way to start a program.

use super::trap;
use anyhow::Context as _;
use rustix::process::{
    Resource, Rlimit, Signal, chroot, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// The parser's command name, at most 15 bytes.
pub(super) const NAME: &std::ffi::CStr = c"samplerd-parser";

/// The parser's user and group. They are not `nobody`, because other processes of `nobody` could
/// send it signals.
const ID: u32 = 65_533;

/// Maximum size of the parser's data. Uncompressed debug information of large programs takes some
/// 10 MB.
const MAX_DATA_BYTES: u64 = 128 << 20;

/// Maximum size of the address space, which includes mapped files.
const MAX_ADDRESS_SPACE_BYTES: u64 = 8 << 30;

/// Maximum number of open files: two for each request, see `MAX_REQUESTS`.
const MAX_FILES: u64 = 1024;

/// Maximum CPU time of a parser, in seconds. A parser that reaches the limit is killed and
/// replaced.
const MAX_CPU_SECONDS: u64 = 600;

const LIMITS: [(Resource, u64); 6] = [
    (Resource::Data, MAX_DATA_BYTES),
    (Resource::As, MAX_ADDRESS_SPACE_BYTES),
    (Resource::Nofile, MAX_FILES),
    (Resource::Cpu, MAX_CPU_SECONDS),
    (Resource::Fsize, 0),
    (Resource::Core, 0),
];

/// An empty directory that always exists. It becomes the parser's root.
const EMPTY: &str = "/proc/self/fdinfo";

/// The allowed system calls: memory, the socket, open descriptors, and the exit. Any other system
/// call ends in [`trap`].
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
];

/// The rights that a child of samplerd keeps.
pub(crate) struct Rights<'a> {
    /// The child's command name, at most 15 bytes.
    pub(crate) name: &'static std::ffi::CStr,
    /// The child's user and group.
    pub(crate) id: u32,
    /// The child's resource limits.
    pub(crate) limits: &'a [(Resource, u64)],
    /// The child's root directory; `None`: samplerd's.
    pub(crate) root: Option<&'static str>,
}

impl Rights<'_> {
    /// Drops every other right, except for system calls: [`keep_calls`] limits those.
    ///
    /// # Errors
    /// If a limit cannot be set. If a capability stays, or the right to gain capabilities. If the
    /// child would outlive samplerd.
    pub(crate) fn keep_only(&self) -> anyhow::Result<()> {
        trap::close_others();
        // In a session of its own, the child gets no signals that a terminal sends to samplerd.
        // `setsid` fails only for the leader of a process group. A child that was just started is
        // no leader.
        let _ = rustix::process::setsid();
        let _ = rustix::thread::set_name(self.name);
        // If memory runs short, the kernel ends the child first. samplerd then starts another one.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        for (resource, limit) in self.limits {
            let limit = Rlimit { current: Some(*limit), maximum: Some(*limit) };
            setrlimit(*resource, limit).with_context(|| format!("limit {resource:?}"))?;
        }
        // These calls may fail if samplerd has few capabilities. Without capabilities and system
        // calls, samplerd's user gives the child little power.
        let _ = self.root.map(chroot);
        let (uid, gid) = (Uid::from_raw(self.id), Gid::from_raw(self.id));
        let _ = set_thread_groups(&[]);
        let _ = set_thread_res_gid(gid, gid, gid);
        let _ = set_thread_res_uid(uid, uid, uid);
        let none = CapabilitySet::empty();
        let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, none).context("give all capabilities away")?;
        // A change of the user clears this signal, so the signal is set after the change.
        set_parent_process_death_signal(Some(Signal::KILL)).context("end with samplerd")?;
        set_no_new_privs(true).context("gain no privileges")
    }
}

/// Drops every right of the parser that can be dropped.
///
/// # Errors
/// If an essential right stays: a capability, the right to gain capabilities, or a system call.
pub(super) fn confine() -> anyhow::Result<()> {
    Rights { name: NAME, id: ID, limits: &LIMITS, root: Some(EMPTY) }.keep_only()?;
    trap::install().context("catch system calls")?;
    let mut rules = rules(ALLOWED)?;
    // These system calls are allowed for descriptors, not for paths.
    let empty = libc::AT_EMPTY_PATH;
    rules.insert(libc::SYS_statx, bits(2, empty, empty)?);
    rules.insert(libc::SYS_newfstatat, bits(3, empty, empty)?);
    keep_calls(rules, SeccompAction::Trap)
}

/// Allowed system calls, with conditions on their arguments. An empty list allows any arguments.
pub(crate) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Rules that allow system calls with any arguments, and mapping memory that is not executable.
///
/// # Errors
/// If the filter's compiler rejects a condition.
pub(crate) fn rules(allowed: &[i64]) -> anyhow::Result<Rules> {
    let mut rules: Rules = allowed.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, bits(2, libc::PROT_EXEC, 0)?);
    rules.insert(libc::SYS_mprotect, bits(2, libc::PROT_EXEC, 0)?);
    Ok(rules)
}

/// A condition that allows a system call only if the `mask` bits of an argument equal `value`.
///
/// # Errors
/// If the filter's compiler rejects a condition.
pub(crate) fn bits(argument: u8, mask: i32, value: i32) -> anyhow::Result<Vec<SeccompRule>> {
    let operator = MaskedEq(u64::from(mask as u32));
    let value = u64::from(value as u32);
    let condition = SeccompCondition::new(argument, Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Allows only the system calls of `rules`, for good. Any other system call ends in `other`.
///
/// # Errors
/// If the filter cannot be compiled, or if the kernel rejects the filter.
pub(crate) fn keep_calls(rules: Rules, other: SeccompAction) -> anyhow::Result<()> {
    let filter = SeccompFilter::new(rules, other, SeccompAction::Allow, TargetArch::x86_64)?;
    let filter: BpfProgram = filter.try_into()?;
    apply_filter(&filter).context("give system calls away")
}
