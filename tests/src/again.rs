//! Repeats measurements that a busy machine can spoil. Right code passes in one of a few tries.
//! Wrong code passes in none.

use anyhow::{Result, bail};

/// Calls `attempt` up to `most` times, until `attempt` returns a value. Otherwise `attempt` returns
/// how far off it was; the final failure lists all these distances. An attempt that is no
/// measurement returns an error, which ends the tries at once.
pub fn until<T>(
    what: &str,
    most: usize,
    mut attempt: impl FnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let mut misses = Vec::new();
    while misses.len() < most {
        match attempt()? {
            Ok(value) => return Ok(value),
            Err(miss) => {
                eprintln!("{what}: {miss}");
                misses.push(miss);
            }
        }
    }
    bail!("{what}: in none of {most} tries: {}", misses.join("; "))
}

#[cfg(test)]
mod tests {
    use super::until;
    use anyhow::bail;

    #[test]
    fn a_try_is_repeated_until_it_succeeds() {
        let mut tries = 0;
        let mut third = || {
            tries += 1;
            Ok(if tries == 3 { Ok(tries) } else { Err(format!("{tries}")) })
        };
        assert_eq!(until("a third", 3, &mut third).expect("the third try"), 3);
        assert_eq!(tries, 3);
    }

    #[test]
    fn a_failed_wait_names_its_tries_and_reasons() {
        let never = until::<()>("never", 2, || Ok(Err("off".to_owned())));
        assert_eq!(never.expect_err("in vain").to_string(), "never: in none of 2 tries: off; off");
    }

    #[test]
    fn an_error_is_not_tried_again() {
        let mut tries = 0;
        let failed = until::<()>("an error", 5, || {
            tries += 1;
            bail!("broken")
        });
        assert_eq!((tries, failed.expect_err("it fails").to_string()), (1, "broken".to_owned()));
    }
}
