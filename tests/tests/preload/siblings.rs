//! Children of a process with the preloaded library sample different calls.

use anyhow::Result;
use sampler_tests::preload;
use sampler_tests::siblings::{CHILDREN, INTERVAL, sample_different_calls};

/// libc runs no fork handlers in them.
#[test]
fn siblings_past_the_fork_of_libc_sample_different_calls() -> Result<()> {
    sample_different_calls(preload::workload("siblings.c", &["raw", CHILDREN], INTERVAL)?, &[])
}
