//! Children of an injected process sample different calls.

use anyhow::Result;
use sampler_tests::Workload;
use sampler_tests::siblings::{CHILDREN, sample_different_calls};

/// A new thread of a child gets the stack of a thread of the parent, and with it the sampler's
/// words.
#[test]
fn new_threads_of_siblings_sample_different_calls() -> Result<()> {
    sample_different_calls(Workload::start("siblings.c", &["thread", CHILDREN])?, &["--inject"])
}
