//! A finished case of the workload, and checks of its profile.

use anyhow::{Context, Result, ensure};
use sampler_tests::profile::Row;
use sampler_tests::truth::TrueSums;
use sampler_tests::{Daemon, Profile, Truth, Workload};

/// Every allocation is sampled, and has room in the ring however late the daemon reads.
pub(super) const ALL: &[&str] = &["--interval", "1", "--ring", "64MiB"];

/// A finished case, still attached.
pub(super) struct Case {
    pub(super) workload: Workload,
    pub(super) daemon: Daemon,
    pub(super) truth: Truth,
}

impl Case {
    pub(super) fn run(case: &[&str]) -> Result<Case> {
        Case::run_with(case, ALL)
    }

    pub(super) fn run_with(case: &[&str], arguments: &[&str]) -> Result<Case> {
        let mut workload = Workload::edge(case)?;
        let daemon = Daemon::start(&[workload.pid()], arguments)?;
        workload.go()?;
        let truth = workload.truth()?;
        Ok(Case { workload, daemon, truth })
    }

    /// The profile of kind alloc. Kind live leaves out stacks of which nothing is held.
    pub(super) fn profile(&self) -> Result<Profile> {
        self.daemon.profile("alloc", &[])
    }

    /// Checks that each function's row equals the truth.
    pub(super) fn rows(&self, profile: &Profile) -> Result<()> {
        for function in &self.truth.functions {
            let row = profile.row(&function.name);
            equals(&function.name, &row, &function.alloc, &function.live)
                .with_context(|| profile.folded())?;
        }
        Ok(())
    }

    /// Checks that nothing else was allocated: totals and exact totals equal the truth too.
    pub(super) fn totals(&self, profile: &Profile) -> Result<()> {
        let total = self.truth.total();
        let exact = (profile.exact_objects, profile.exact_space);
        let truth = (total.alloc.objects, total.alloc.bytes);
        ensure!(exact == truth, "exact {exact:?} is not {truth:?}\n{}", profile.folded());
        let totals = &profile.totals;
        let row = Row {
            stacks: 0,
            alloc_space: totals.alloc_space.moments,
            alloc_objects: totals.alloc_objects.moments,
            inuse_space: totals.inuse_space.moments,
            inuse_objects: totals.inuse_objects.moments,
        };
        equals("total", &row, &total.alloc, &total.live).with_context(|| profile.folded())
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.workload.exit()?;
        self.daemon.stop()
    }
}

pub(super) fn equals(name: &str, row: &Row, alloc: &TrueSums, live: &TrueSums) -> Result<()> {
    for (what, ours, truth) in [
        ("alloc bytes", row.alloc_space.sum, alloc.bytes),
        ("alloc objects", row.alloc_objects.sum, alloc.objects),
        ("live bytes", row.inuse_space.sum, live.bytes),
        ("live objects", row.inuse_objects.sum, live.objects),
    ] {
        ensure!(ours == truth as f64, "{name}: {what} {ours} is not {truth}");
    }
    Ok(())
}

/// Checks a case in which nothing is allocated but what the truth counts.
pub(super) fn whole(case: &[&str]) -> Result<()> {
    let case = Case::run(case)?;
    let profile = case.profile()?;
    case.rows(&profile)?;
    case.totals(&profile)?;
    case.end()
}

/// Checks a case in which libc allocates as well.
pub(super) fn rows(case: &[&str]) -> Result<(Case, Profile)> {
    let case = Case::run(case)?;
    let profile = case.profile()?;
    case.rows(&profile)?;
    Ok((case, profile))
}
