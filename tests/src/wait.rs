//! Waiting for conditions.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two looks at a condition.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// Asks until `look` gives a value; fails with `what` after [`DEADLINE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_deadline(what, DEADLINE, look)
}

/// [`until`] with another deadline.
pub fn until_deadline<T>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if start.elapsed() > deadline {
            bail!("waited {} s in vain for {what}", deadline.as_secs());
        }
        std::thread::sleep(POLL_PERIOD);
    }
}

/// Lets time itself pass: only where the length of a stop is what is tested.
pub fn pass(time: Duration) {
    std::thread::sleep(time);
}
