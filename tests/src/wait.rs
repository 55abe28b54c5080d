//! Waiting for conditions.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How long a condition may take before a test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two checks of a condition.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// Calls `check` until `check` returns a value. Fails with `what` after [`DEADLINE`].
pub fn until<T>(what: &str, check: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_deadline(what, DEADLINE, check)
}

/// [`until`] with another deadline.
pub fn until_deadline<T>(
    what: &str,
    deadline: Duration,
    mut check: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = check()? {
            return Ok(value);
        }
        if start.elapsed() > deadline {
            bail!("waited {} s in vain for {what}", deadline.as_secs());
        }
        std::thread::sleep(POLL_PERIOD);
    }
}

/// Sleeps for `time`. Used only if the length of a pause is what is tested.
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}
