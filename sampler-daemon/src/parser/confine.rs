//! How the parser gives its rights away.
//!
//! What it keeps: memory and CPU time within bounds, and a socket. Whoever takes it over by a file finds no other right, no file system and no way to start anything.

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

/// Its command name, at most 15 bytes.
pub(super) const NAME: &std::ffi::CStr = c"samplerd-parser";

/// User and group. Not those of `nobody`, whose other processes could send it signals.
const ID: u32 = 65_533;

/// Bytes that it may take: debug information of large programs, uncompressed, takes some ten.
const MAX_DATA_BYTES: u64 = 128 << 20;

/// Bytes of address space: the files that are mapped are among them.
const MAX_ADDRESS_SPACE_BYTES: u64 = 8 << 30;

/// Files that are open at a time: two a request, see `MAX_REQUESTS`.
const MAX_FILES: u64 = 1024;

/// CPU time in its life, seconds. Who has taken so much is replaced.
const MAX_CPU_SECONDS: u64 = 600;

const LIMITS: [(Resource, u64); 6] = [
    (Resource::Data, MAX_DATA_BYTES),
    (Resource::As, MAX_ADDRESS_SPACE_BYTES),
    (Resource::Nofile, MAX_FILES),
    (Resource::Cpu, MAX_CPU_SECONDS),
    (Resource::Fsize, 0),
    (Resource::Core, 0),
];

/// An empty directory that is always there: it becomes the root.
const EMPTY: &str = "/proc/self/fdinfo";

/// System calls that are left: memory, the socket, descriptors that it has, and its end. Any other one ends in [`trap`].
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

/// Gives every right away that can be given away.
///
/// # Errors
/// If one of those that matter stays: a capability, the right to gain some, or a system call.
pub(super) fn confine() -> anyhow::Result<()> {
    trap::close_others();
    // What a terminal sends to samplerd is not for it. It fails for who leads a group, as nobody does who was just started.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(NAME);
    // Where memory is short it goes first: samplerd starts another one.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    for (resource, limit) in LIMITS {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).with_context(|| format!("limit {resource:?}"))?;
    }
    // A samplerd of few capabilities may do neither; without capabilities and file system its user is worth nothing.
    let _ = chroot(EMPTY);
    let (uid, gid) = (Uid::from_raw(ID), Gid::from_raw(ID));
    let _ = set_thread_groups(&[]);
    let _ = set_thread_res_gid(gid, gid, gid);
    let _ = set_thread_res_uid(uid, uid, uid);
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).context("give all capabilities away")?;
    // A change of the user takes it back.
    set_parent_process_death_signal(Some(Signal::KILL)).context("end with samplerd")?;
    set_no_new_privs(true).context("gain no privileges")?;
    trap::install().context("catch system calls")?;
    apply_filter(&filter()?).context("give system calls away")
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let bits = |argument: u8, mask: i32, value: i32| {
        let operator = MaskedEq(mask as u64);
        let condition = SeccompCondition::new(argument, Dword, operator, value as u64)?;
        SeccompRule::new(vec![condition]).map(|rule| vec![rule])
    };
    // No memory becomes code.
    rules.insert(libc::SYS_mmap, bits(2, libc::PROT_EXEC, 0)?);
    rules.insert(libc::SYS_mprotect, bits(2, libc::PROT_EXEC, 0)?);
    // Of descriptors, not of paths.
    let empty = libc::AT_EMPTY_PATH;
    rules.insert(libc::SYS_statx, bits(2, empty, empty)?);
    rules.insert(libc::SYS_newfstatat, bits(3, empty, empty)?);
    SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, TargetArch::x86_64)?
        .try_into()
}
