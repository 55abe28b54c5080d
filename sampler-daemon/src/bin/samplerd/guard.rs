//! Refuses shared links on kernels on which a return probe can kill a process.
//!
//! A shared link is in every process that maps its file, and in new processes from their first
//! instruction on. Excluded processes, and processes that were not given, are probed as well.

use crate::args::Args;
use crate::run::MAX_OWN_LINK_PROCESSES;
use sampler_daemon::bpf::filtered::returns_pass;
use sampler_daemon::inspect::hazard::{self, SharedHazard};
use sampler_daemon::pipeline::AttachMode;

/// Checks that the requested links cannot harm a process.
///
/// # Errors
/// One line with the requested option, the reason and the remedy.
pub(crate) fn check(args: &Args, attach_mode: AttachMode) -> anyhow::Result<()> {
    // In processes that sample by themselves, only entries are probed.
    if attach_mode == AttachMode::Pids || args.probes_samplers_only() {
        return Ok(());
    }
    match hazard::check_shared(returns_pass) {
        None => Ok(()),
        Some(hazard) => Err(anyhow::anyhow!(refusal(attach_mode, args.pids.len(), hazard))),
    }
}

fn refusal(attach_mode: AttachMode, given: usize, hazard: SharedHazard) -> String {
    let (requested, instead) = match attach_mode {
        AttachMode::AllProcesses => ("--all".to_owned(), "give --pid".to_owned()),
        AttachMode::Descendants => {
            ("--follow".to_owned(), "leave it out; with sampler run: add --preload".to_owned())
        }
        AttachMode::Pids | AttachMode::PidsSharedLinks => (
            format!("{given} processes given with --pid"),
            format!("give at most {MAX_OWN_LINK_PROCESSES}, or add --windows 1%"),
        ),
    };
    format!("{requested}: {hazard} ({instead}; needs {})", hazard.needs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_a_remedy() {
        for (attach_mode, requested, instead) in [
            (AttachMode::AllProcesses, "--all: ", "(give --pid; "),
            (
                AttachMode::Descendants,
                "--follow: ",
                "(leave it out; with sampler run: add --preload; ",
            ),
            (AttachMode::PidsSharedLinks, "7 processes given with --pid: ", "(give at most 4, or "),
        ] {
            for hazard in [SharedHazard::Seccomp, SharedHazard::ShadowStack] {
                let line = refusal(attach_mode, 7, hazard);
                assert!(line.starts_with(requested) && line.contains(instead), "{line}");
                assert!(line.contains("needs Linux 6.1") && !line.contains('\n'), "{line}");
            }
        }
    }
}
