//! The verdict of the target's seccomp programs on a system call that a borrowed thread is to make.
//!
//! A program is classic BPF over `struct seccomp_data`. It is checked and run as in Linux:
//! `seccomp_check_filter` and `__seccomp_filter` in `kernel/seccomp.c`, `bpf_check_classic` and
//! `bpf_convert_filter` in `net/core/filter.c`.
//! The caller reads the programs (`PTRACE_SECCOMP_GET_FILTER`) and lists its calls.

mod check;
mod run;

use libc::sock_filter;

/// A system call as seccomp programs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the call on x86-64.
    pub nr: u64,
    /// Arguments of the call.
    pub args: [u64; 6],
    /// Address behind the call's `syscall` instruction.
    pub ip: u64,
}

/// The kernel's decision on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries the call out, perhaps with a line in its log.
    Allow,
    /// The kernel does not carry the call out as it would otherwise.
    Refuse {
        /// The program's return value: `SECCOMP_RET_…` in the upper half, its data in the lower.
        action: u32,
    },
}

/// Reasons why a program has no verdict. The kernel installs no such program, so its copy must be
/// wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program has no instruction, or more than `BPF_MAXINSNS`.
    #[error("seccomp program of {instructions} instructions: the kernel takes 1 to 4096")]
    Length {
        /// Number of instructions.
        instructions: usize,
    },
    /// seccomp does not have this instruction.
    #[error("seccomp program: instruction {index} has the unknown code {code:#x}")]
    Code {
        /// Index of the instruction.
        index: usize,
        /// Code of the instruction.
        code: u16,
    },
    /// The constant of this instruction is out of range: an offset, a divisor, a distance or a
    /// memory word.
    #[error("seccomp program: instruction {index} has the constant {k:#x}, which is out of range")]
    Constant {
        /// Index of the instruction.
        index: usize,
        /// Constant of the instruction.
        k: u32,
    },
    /// This instruction jumps behind the end.
    #[error("seccomp program: instruction {index} jumps behind the end")]
    Jump {
        /// Index of the instruction.
        index: usize,
    },
    /// This instruction reads a memory word that some path to the instruction has not written.
    #[error("seccomp program: instruction {index} reads memory that nothing has written")]
    Unwritten {
        /// Index of the instruction.
        index: usize,
    },
    /// The last instruction does not return.
    #[error("seccomp program: the last instruction does not return")]
    End,
}

/// Evaluates one program for a call.
///
/// # Errors
/// If the kernel would not have installed the program.
pub fn evaluate(program: &[sock_filter], call: &Call) -> Result<Verdict, Error> {
    check::check(program)?;
    let action = run::run(program, &run::Data::new(call));
    Ok(match action & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Verdict::Allow,
        _ => Verdict::Refuse { action },
    })
}

/// Evaluates all programs of a thread for a call. The most severe action counts.
///
/// # Errors
/// If the kernel would not have installed one of the programs.
pub fn evaluate_all<'p>(
    programs: impl IntoIterator<Item = &'p [sock_filter]>,
    call: &Call,
) -> Result<Verdict, Error> {
    let mut worst = Verdict::Allow;
    for program in programs {
        let verdict = evaluate(program, call)?;
        if severity(verdict) < severity(worst) {
            worst = verdict;
        }
    }
    Ok(worst)
}

/// Severity of a verdict. The kernel compares actions as signed numbers; the lowest counts.
fn severity(verdict: Verdict) -> i32 {
    let action = match verdict {
        Verdict::Allow => libc::SECCOMP_RET_ALLOW,
        Verdict::Refuse { action } => action,
    };
    (action & libc::SECCOMP_RET_ACTION_FULL).cast_signed()
}

#[cfg(test)]
mod tests;
