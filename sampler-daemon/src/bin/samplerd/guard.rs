//! Refuses links that processes share on kernels where a return probe kills some: such a link is in every process that maps its file, in each new one
//! from its first instruction on. Who is excluded, or none of those given, is probed as well.

use crate::args::Args;
use crate::run::MAX_OWN_LINK_PROCESSES;
use sampler_daemon::bpf::filtered::returns_pass;
use sampler_daemon::inspect::hazard::{self, SharedHazard};
use sampler_daemon::pipeline::AttachMode;

/// Whether what was asked for can harm nobody.
///
/// # Errors
/// One line with what was asked for, why not, and what can be done.
pub(crate) fn check(args: &Args, attach_mode: AttachMode) -> anyhow::Result<()> {
    // Processes that sample by themselves are probed at entries only.
    if attach_mode == AttachMode::Pids || args.probes_samplers_only() {
        return Ok(());
    }
    match hazard::check_shared(returns_pass) {
        None => Ok(()),
        Some(hazard) => Err(anyhow::anyhow!(refusal(attach_mode, args.pids.len(), hazard))),
    }
}

fn refusal(attach_mode: AttachMode, given: usize, hazard: SharedHazard) -> String {
    let (asked, instead) = match attach_mode {
        AttachMode::AllProcesses => ("--all".to_owned(), "give --pid".to_owned()),
        AttachMode::Descendants => {
            ("--follow".to_owned(), "leave it out; with sampler run: add --preload".to_owned())
        }
        AttachMode::Pids | AttachMode::PidsSharedLinks => (
            format!("{given} processes given with --pid"),
            format!("give at most {MAX_OWN_LINK_PROCESSES}, or add --windows 1%"),
        ),
    };
    format!("{asked}: {hazard} ({instead}; needs {})", hazard.needs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_what_can_be_done() {
        for (attach_mode, asked, instead) in [
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
                assert!(line.starts_with(asked) && line.contains(instead), "{line}");
                assert!(line.contains("needs Linux 6.1") && !line.contains('\n'), "{line}");
            }
        }
    }
}
