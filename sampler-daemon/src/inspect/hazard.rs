//! Processes that a return probe could harm. They are refused, because no profile is worth a crash.

use super::elf::Elf;
use super::process::program::Program;
use std::fs::{self, File};

/// The first kernel whose return probes match shadow stacks.
const WITH_SHADOW_STACKS: (u32, u32) = (6, 11);

/// Why a process is not probed. Each message is one line with its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    /// Go moves its stacks, while the kernel keeps the address on the stack at which it hijacked a
    /// return.
    #[error(
        "a Go program may crash under return probes, and its heap is not malloc's (try its own pprof)"
    )]
    Go,
    /// Linux 6.11 made the return probe a system call that no seccomp filter allows. Linux 6.14,
    /// and updates of older kernels, let it pass all filters.
    #[error(
        "its seccomp filter would kill it at a return probe on this kernel (needs Linux 6.14 or a newer update of 6.12)"
    )]
    Seccomp,
    /// The system call of the return probe goes to the program itself, or to its tracer.
    #[error(
        "a return probe would kill it: its system calls go to itself (Syscall User Dispatch) or to its tracer (profile it alone: one --pid, with session probes, Linux 6.13)"
    )]
    Diverted,
    /// Before Linux 6.11, a hijacked return address does not match the shadow stack.
    #[error(
        "its shadow stack would kill it at a return probe before Linux 6.11 (needs Linux 6.11)"
    )]
    ShadowStack,
}

/// Why processes cannot be probed by shared links. A shared link probes a process before it is
/// checked, and cannot release it afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedHazard {
    /// As for [`Hazard::Seccomp`].
    #[error(
        "on this kernel a return probe kills processes under a seccomp filter, and they cannot be checked before they are probed"
    )]
    Seccomp,
    /// As for [`Hazard::ShadowStack`].
    #[error(
        "on this kernel a return probe kills processes with a shadow stack, which this processor has, and they cannot be checked before they are probed"
    )]
    ShadowStack,
}

impl SharedHazard {
    /// The first kernel without the hazard.
    pub fn needs(self) -> &'static str {
        match self {
            SharedHazard::Seccomp => "Linux 6.14 or a newer update of 6.12",
            SharedHazard::ShadowStack => "Linux 6.11",
        }
    }
}

/// What would harm processes that are probed before they are checked, on this machine.
/// `returns_pass` tells whether return probes pass seccomp filters. It is called only if the
/// kernel's version does not tell.
pub fn check_shared(returns_pass: fn() -> bool) -> Option<SharedHazard> {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = kernel();
    judge_shared(kernel, filters_kill(kernel, returns_pass), has_user_shadow_stacks(&processor))
}

fn judge_shared(
    kernel: (u32, u32),
    filters_kill: bool,
    user_shadow_stacks: bool,
) -> Option<SharedHazard> {
    if filters_kill {
        return Some(SharedHazard::Seccomp);
    }
    (user_shadow_stacks && kernel < WITH_SHADOW_STACKS).then_some(SharedHazard::ShadowStack)
}

/// Whether a seccomp filter kills its process at a return probe.
fn filters_kill(kernel: (u32, u32), returns_pass: fn() -> bool) -> bool {
    ((6, 11)..(6, 14)).contains(&kernel) && !returns_pass()
}

/// Whether programs can have shadow stacks. The kernel lists the flag only if it offers shadow
/// stacks to programs, since Linux 6.6.
fn has_user_shadow_stacks(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "user_shstk"))
}

/// The facts that decide.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Major and minor version of the kernel.
    kernel: (u32, u32),
    /// Whether a thread runs under a seccomp filter that a return probe does not pass.
    deadly_filter: bool,
    /// Whether a thread has a user shadow stack.
    shadow_stack: bool,
    /// Whether Go's linker made the executable.
    go: bool,
}

/// What would harm process `pid`, if anything; `returns_pass` as for [`check_shared`]. A file that
/// cannot be read does not count: the process is gone, or attaching fails for the same reason.
pub fn check(pid: u32, returns_pass: fn() -> bool) -> Option<Hazard> {
    let kernel = kernel();
    let filters_kill = filters_kill(kernel, returns_pass);
    let shadow_stacks_kill = kernel < WITH_SHADOW_STACKS;
    // A process may have thousands of threads, so they are read only if they matter.
    let status = if filters_kill || shadow_stacks_kill { threads(pid) } else { Vec::new() };
    judge(Facts {
        kernel,
        deadly_filter: filters_kill && status.iter().any(|status| has_filter(status)),
        shadow_stack: shadow_stacks_kill && status.iter().any(|status| is_shadowed(status)),
        go: is_go(pid),
    })
}

fn judge(facts: Facts) -> Option<Hazard> {
    if facts.go {
        return Some(Hazard::Go);
    }
    if facts.deadly_filter {
        return Some(Hazard::Seccomp);
    }
    (facts.shadow_stack && facts.kernel < WITH_SHADOW_STACKS).then_some(Hazard::ShadowStack)
}

/// Whether a return probe makes a system call in the thread, on this kernel.
pub fn returns_make_calls() -> bool {
    kernel() >= (6, 11)
}

fn kernel() -> (u32, u32) {
    kernel_version(&rustix::system::uname().release().to_string_lossy())
}

/// `6.18.44-generic` → (6, 18). A part that is no number counts as 0.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The text of `status` of every thread.
fn threads(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok()).collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_default().trim()
}

fn has_filter(status: &str) -> bool {
    field(status, "Seccomp") == "2"
}

fn is_shadowed(status: &str) -> bool {
    field(status, "x86_Thread_features").split_whitespace().any(|feature| feature == "shstk")
}

/// Whether the first thread of process `pid` has a program. When a process ends, its first thread
/// loses the program, while other threads may keep it for a moment. [`check`] finds nothing then.
pub fn has_program(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Whether process `pid` runs a program that Go's linker made.
pub fn is_go(pid: u32) -> bool {
    match File::open(format!("/proc/{pid}/exe")) {
        Ok(file) => Elf::read(&file).is_ok_and(|elf| elf.is_go),
        // Only the file's user may be able to open it, as on FUSE mounts.
        Err(_) => Program::of(pid).is_ok_and(|program| program.is_go()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass() -> bool {
        true
    }

    fn kill() -> bool {
        false
    }

    #[test]
    fn only_processes_that_probes_would_harm_are_refused() {
        let facts = |kernel| Facts { kernel, ..Facts::default() };
        assert_eq!(judge(facts((6, 12))), None);
        for (kernel, shadowed) in [
            ((6, 1), Some(Hazard::ShadowStack)),
            ((6, 10), Some(Hazard::ShadowStack)),
            ((6, 11), None),
            ((7, 0), None),
        ] {
            assert_eq!(judge(Facts { shadow_stack: true, ..facts(kernel) }), shadowed);
        }
        let filtered = Facts { deadly_filter: true, ..facts((6, 12)) };
        assert_eq!(judge(filtered), Some(Hazard::Seccomp));
        assert_eq!(judge(Facts { go: true, ..facts((7, 0)) }), Some(Hazard::Go));
    }

    #[test]
    fn filters_are_tested_where_the_version_is_ambiguous() {
        for kernel in [(6, 11), (6, 12), (6, 13)] {
            assert!(filters_kill(kernel, kill) && !filters_kill(kernel, pass));
        }
        for kernel in [(5, 15), (6, 10), (6, 14), (7, 0)] {
            assert!(!filters_kill(kernel, || panic!("asked of a kernel that is known")));
        }
    }

    #[test]
    fn facts_are_read_from_texts_of_the_kernel() {
        assert_eq!(kernel_version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(kernel_version("6.11-rc1"), (6, 11));
        assert_eq!(kernel_version(""), (0, 0));
        let status = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\nx86_Thread_features:\tshstk \n";
        assert!(has_filter(status) && is_shadowed(status));
        let status = "Seccomp:\t0\nSeccomp_filters:\t2\nx86_Thread_features:\t\n";
        assert!(!has_filter(status) && !is_shadowed(status));
    }

    #[test]
    fn shared_links_are_refused_on_hazardous_kernels() {
        for (kernel, filters_kill, shadow_stacks, hazard) in [
            ((5, 15), false, false, None),
            ((6, 6), false, true, Some(SharedHazard::ShadowStack)),
            ((6, 10), false, true, Some(SharedHazard::ShadowStack)),
            ((6, 10), false, false, None),
            ((6, 12), true, false, Some(SharedHazard::Seccomp)),
            ((6, 12), false, true, None),
            ((6, 13), true, true, Some(SharedHazard::Seccomp)),
            ((7, 0), false, true, None),
        ] {
            assert_eq!(judge_shared(kernel, filters_kill, shadow_stacks), hazard, "{kernel:?}");
        }
        let cpuinfo = "processor : 0\nflags\t\t: fpu user_shstk ibt\n";
        assert!(has_user_shadow_stacks(cpuinfo));
        assert!(!has_user_shadow_stacks("flags : fpu shstk\n") && !has_user_shadow_stacks(""));
    }

    #[test]
    fn probes_would_not_harm_this_program() {
        assert_eq!(check(std::process::id(), kill), None);
    }
}
