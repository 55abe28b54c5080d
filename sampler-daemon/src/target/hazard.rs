//! Processes that a return probe could harm. They are refused: no profile is worth a crash.

use super::elf::Elf;
use std::fs::{self, File};

/// Why a process is not probed. Each message is one line with its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    /// Go moves its stacks while the kernel keeps the return address of a hijacked one.
    #[error(
        "a Go program may crash under return probes, and its heap is not malloc's (try its own pprof)"
    )]
    Go,
    /// Linux 6.11 made the return probe a system call, which filters did not know until 6.14.
    #[error(
        "its seccomp filter would kill it at a return probe on Linux 6.11 to 6.13 (needs Linux 6.14)"
    )]
    Seccomp,
    /// A hijacked return address does not match the shadow stack before 6.11.
    #[error(
        "its shadow stack would kill it at a return probe before Linux 6.11 (needs Linux 6.11)"
    )]
    ShadowStack,
}

/// Why all processes of a machine at once cannot be probed: a process is probed before anyone has looked at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenHazard {
    /// As [`Hazard::Seccomp`].
    #[error(
        "on Linux 6.11 to 6.13 a return probe kills processes under a seccomp filter before they can be checked (give --pid, or use Linux 6.14)"
    )]
    Seccomp,
    /// As [`Hazard::ShadowStack`].
    #[error(
        "before Linux 6.11 a return probe kills processes with a shadow stack, which this processor has, before they can be checked (give --pid, or use Linux 6.11)"
    )]
    ShadowStack,
}

/// What would harm processes that are probed before they are looked at, on this machine.
pub fn check_open() -> Option<OpenHazard> {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    judge_open(
        kernel_version(&rustix::system::uname().release().to_string_lossy()),
        has_user_shadow_stacks(&processor),
    )
}

fn judge_open(kernel: (u32, u32), user_shadow_stacks: bool) -> Option<OpenHazard> {
    if ((6, 11)..(6, 14)).contains(&kernel) {
        return Some(OpenHazard::Seccomp);
    }
    (user_shadow_stacks && kernel < (6, 11)).then_some(OpenHazard::ShadowStack)
}

/// The kernel lists the flag only where it offers them to programs, since 6.6.
fn has_user_shadow_stacks(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "user_shstk"))
}

/// What decides.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Major and minor version of the kernel.
    kernel: (u32, u32),
    /// A thread runs under a seccomp filter.
    seccomp_filter: bool,
    /// A thread has a user shadow stack.
    shadow_stack: bool,
    /// The executable was made by Go's linker.
    go: bool,
}

/// What would harm process `pid`, if anything. What cannot be read does not count: the process is
/// gone, or attaching fails for the same reason.
pub fn check(pid: u32) -> Option<Hazard> {
    let status = threads(pid);
    judge(Facts {
        kernel: kernel_version(&rustix::system::uname().release().to_string_lossy()),
        seccomp_filter: status.iter().any(|status| has_filter(status)),
        shadow_stack: status.iter().any(|status| is_shadowed(status)),
        go: is_go(pid),
    })
}

fn judge(facts: Facts) -> Option<Hazard> {
    if facts.go {
        return Some(Hazard::Go);
    }
    if facts.seccomp_filter && ((6, 11)..(6, 14)).contains(&facts.kernel) {
        return Some(Hazard::Seccomp);
    }
    (facts.shadow_stack && facts.kernel < (6, 11)).then_some(Hazard::ShadowStack)
}

/// `6.18.44-generic` → (6, 18); what is no number counts as 0.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// `status` of every thread.
fn threads(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok()).collect()
}

/// Whether a thread of process `pid` has a user shadow stack.
pub fn has_shadow_stack(pid: u32) -> bool {
    threads(pid).iter().any(|status| is_shadowed(status))
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

/// Whether process `pid` runs a program that Go's linker made.
pub(super) fn is_go(pid: u32) -> bool {
    let executable = File::open(format!("/proc/{pid}/exe"));
    executable.is_ok_and(|file| Elf::read(&file).is_ok_and(|elf| elf.is_go))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_harms_is_refused() {
        let facts = |kernel| Facts { kernel, ..Facts::default() };
        assert_eq!(judge(facts((6, 12))), None);
        for (kernel, filtered, shadowed) in [
            ((6, 1), None, Some(Hazard::ShadowStack)),
            ((6, 10), None, Some(Hazard::ShadowStack)),
            ((6, 11), Some(Hazard::Seccomp), None),
            ((6, 13), Some(Hazard::Seccomp), None),
            ((6, 14), None, None),
            ((7, 0), None, None),
        ] {
            assert_eq!(judge(Facts { seccomp_filter: true, ..facts(kernel) }), filtered);
            assert_eq!(judge(Facts { shadow_stack: true, ..facts(kernel) }), shadowed);
        }
        assert_eq!(judge(Facts { go: true, ..facts((7, 0)) }), Some(Hazard::Go));
    }

    #[test]
    fn facts_are_read_from_what_the_kernel_prints() {
        assert_eq!(kernel_version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(kernel_version("6.11-rc1"), (6, 11));
        assert_eq!(kernel_version(""), (0, 0));
        let status = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\nx86_Thread_features:\tshstk \n";
        assert!(has_filter(status) && is_shadowed(status));
        let status = "Seccomp:\t0\nSeccomp_filters:\t2\nx86_Thread_features:\t\n";
        assert!(!has_filter(status) && !is_shadowed(status));
    }

    #[test]
    fn all_at_once_only_where_a_look_is_not_needed_first() {
        for (kernel, shadow_stacks, hazard) in [
            ((5, 15), false, None),
            ((6, 6), true, Some(OpenHazard::ShadowStack)),
            ((6, 10), true, Some(OpenHazard::ShadowStack)),
            ((6, 10), false, None),
            ((6, 11), false, Some(OpenHazard::Seccomp)),
            ((6, 13), true, Some(OpenHazard::Seccomp)),
            ((6, 14), true, None),
            ((7, 0), true, None),
        ] {
            assert_eq!(judge_open(kernel, shadow_stacks), hazard, "{kernel:?}");
        }
        let cpuinfo = "processor : 0\nflags\t\t: fpu user_shstk ibt\n";
        assert!(has_user_shadow_stacks(cpuinfo));
        assert!(!has_user_shadow_stacks("flags : fpu shstk\n") && !has_user_shadow_stacks(""));
        for hazard in [OpenHazard::Seccomp, OpenHazard::ShadowStack] {
            assert!(
                hazard.to_string().contains("give --pid") && !hazard.to_string().contains('\n')
            );
        }
    }

    #[test]
    fn this_program_is_harmless() {
        assert_eq!(check(std::process::id()), None);
    }
}
