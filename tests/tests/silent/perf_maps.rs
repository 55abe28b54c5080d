//! Names of generated code.

use anyhow::{Result, ensure};
use sampler_tests::{Daemon, Workload, wait};
use std::time::Duration;

/// A map that is rewritten as a whole names later samples. Earlier samples keep their names, even
/// if they were not read before the rewrite.
#[test]
fn a_rewritten_map_names_each_sample_by_its_time() -> Result<()> {
    for asks_between in [false, true] {
        let mut workload = Workload::start("generated.c", &[])?;
        let daemon = Daemon::start(&[workload.pid()], &["--interval", "1", "--ring", "64MiB"])?;
        workload.go()?;
        workload.wait_for_mark()?;
        if asks_between {
            let profile = daemon.profile("alloc", &[])?;
            let sum = profile.row("before").alloc_space.sum;
            ensure!(sum == 300_000.0, "{sum}\n{}", profile.folded());
        }
        // File times have a coarse clock.
        wait::pass(Duration::from_millis(20));
        workload.go()?;
        let truth = workload.truth()?;
        let profile = daemon.profile("alloc", &[])?;
        for of in &truth.functions {
            let sum = profile.row(&of.name).alloc_space.sum;
            ensure!(sum == of.alloc.bytes as f64, "{}: {sum}\n{}", of.name, profile.folded());
        }
        workload.exit()?;
        daemon.stop()?;
    }
    Ok(())
}
