//! Refuses links that processes share on kernels where a return probe kills some: such a link is in every process that maps its file, in each new one
//! from its first instruction on. Who is excluded, or none of those given, is probed as well.

use crate::args::Args;
use crate::run::FEW;
use sampler_daemon::bpf::filtered::returns_pass;
use sampler_daemon::pipeline::Reach;
use sampler_daemon::target::hazard::{self, SharedHazard};

/// Whether what was asked for can harm nobody.
///
/// # Errors
/// One line with what was asked for, why not, and what can be done.
pub(crate) fn check(args: &Args, reach: Reach) -> anyhow::Result<()> {
    // Processes that sample by themselves are probed at entries only.
    if reach == Reach::Listed || args.probes_samplers_only() {
        return Ok(());
    }
    match hazard::check_shared(returns_pass) {
        None => Ok(()),
        Some(hazard) => Err(anyhow::anyhow!(refusal(reach, args.pids.len(), hazard))),
    }
}

fn refusal(reach: Reach, given: usize, hazard: SharedHazard) -> String {
    let (asked, instead) = match reach {
        Reach::Everyone => ("--all".to_owned(), "give --pid".to_owned()),
        Reach::Tree => {
            ("--follow".to_owned(), "leave it out; with sampler run: add --preload".to_owned())
        }
        Reach::Listed | Reach::Shared => (
            format!("{given} processes given with --pid"),
            format!("give at most {FEW}, or add --windows 1%"),
        ),
    };
    format!("{asked}: {hazard} ({instead}; needs {})", hazard.needs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_with_what_can_be_done() {
        for (reach, asked, instead) in [
            (Reach::Everyone, "--all: ", "(give --pid; "),
            (Reach::Tree, "--follow: ", "(leave it out; with sampler run: add --preload; "),
            (Reach::Shared, "7 processes given with --pid: ", "(give at most 4, or "),
        ] {
            for hazard in [SharedHazard::Seccomp, SharedHazard::ShadowStack] {
                let line = refusal(reach, 7, hazard);
                assert!(line.starts_with(asked) && line.contains(instead), "{line}");
                assert!(line.contains("needs Linux 6.1") && !line.contains('\n'), "{line}");
            }
        }
    }
}
