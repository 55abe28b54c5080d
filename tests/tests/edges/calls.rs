//! Every way of calling the malloc family.

use crate::case::{Case, whole};
use anyhow::{Result, ensure};

#[test]
fn every_form_of_realloc_is_counted() -> Result<()> {
    whole(&["realloc"])
}

#[test]
fn every_form_of_aligned_allocation_is_counted() -> Result<()> {
    whole(&["aligned"])
}

#[test]
fn calls_without_an_allocation_are_not_counted() -> Result<()> {
    whole(&["odd"])
}

#[test]
fn failed_calls_are_counted_as_outcomes() -> Result<()> {
    let case = Case::run(&["odd"])?;
    let status = case.daemon.status()?;
    let failed = sampler_tests::daemon::outcome(&status, "failed")
        + sampler_tests::daemon::outcome(&status, "refused");
    ensure!(failed >= 12, "2 callocs and 10 mallocs failed: {}", status["outcomes"]);
    case.end()
}

/// Twenty calls jump out of `posix_memalign` from the same place. Each call but the last is
/// replaced by the next call, and counted as replaced.
#[test]
fn calls_that_never_return_are_counted() -> Result<()> {
    let case = Case::run(&["jumps"])?;
    let status = case.daemon.status()?;
    let replaced = sampler_tests::daemon::outcome(&status, "pending_replaced");
    ensure!(replaced == 19, "{replaced} of 19: {}", status["outcomes"]);
    case.end()
}
