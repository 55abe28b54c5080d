//! The in-process sampler of `--preload`: where the library is, and how the program loads it.

use super::args::{RunVerb, StartVerb};
use super::program::Environment;
use anyhow::{Result, anyhow, ensure};
use sampler_daemon::installed;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// File name of the library.
const NAME: &str = "libsampler_preload.so";

/// The loader's variable. The loader searches the names in it in their order.
const PRELOAD: &str = "LD_PRELOAD";
/// AddressSanitizer's variable. By default AddressSanitizer refuses a program in which a library is
/// preloaded before it. Options that the variable already has come later, and so win.
const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "verify_asan_link_order=0");
/// The variable of the library's interval.
const INTERVAL: &str = "SAMPLER_INTERVAL";

/// Returns arguments of the copy that becomes the program.
pub(super) fn arguments(verb: &RunVerb) -> Result<Vec<OsString>> {
    if !verb.preload {
        return Ok(Vec::new());
    }
    let mut library = OsString::from("--preload=");
    library.push(find()?);
    let interval = verb.interval.map(|bytes| format!("--preload-interval={bytes}").into());
    Ok([library].into_iter().chain(interval).collect())
}

/// Returns the variables that are changed in the program's environment. Its children inherit them.
pub(super) fn environment(verb: &StartVerb) -> Environment {
    let Some(library) = &verb.preload else { return Environment::new() };
    // If several allocators are loaded, programs call the first one.
    let preload = before_others(library.clone().into_os_string(), PRELOAD);
    let sanitizer = before_others(SANITIZER.1.into(), SANITIZER.0);
    let interval = verb.preload_interval.map(|bytes| (INTERVAL, bytes.to_string().into()));
    [(PRELOAD, preload), (SANITIZER.0, sanitizer)].into_iter().chain(interval).collect()
}

/// Returns `first`, followed by the variable's present value.
fn before_others(first: OsString, variable: &str) -> OsString {
    let others = std::env::var_os(variable).filter(|others| !others.is_empty());
    let both = others.map(|others| [first.as_os_str(), others.as_os_str()].join(OsStr::new(":")));
    both.unwrap_or(first)
}

/// Checks that the program's user can read the library. The loader skips a library that it cannot
/// read, and the program would not be sampled.
pub(super) fn check(verb: &StartVerb) -> Result<()> {
    let Some(library) = &verb.preload else { return Ok(()) };
    let found = std::fs::File::open(library).map(drop);
    found.map_err(|error| {
        let (path, why) = (library.display(), crate::output::reason(&error));
        anyhow!("--preload: {path}: {why} (put sampler where the program's user may read)")
    })
}

fn find() -> Result<PathBuf> {
    let path = installed::find(NAME).ok_or_else(|| {
        anyhow!(
            "--preload: {NAME} is not beside this program (cargo xtask build-preload builds it)"
        )
    })?;
    let separates = |byte: &u8| matches!(byte, b' ' | b':');
    ensure!(
        !path.as_os_str().as_bytes().iter().any(separates),
        "--preload: {}: the loader takes no spaces and colons in {PRELOAD} (move the library)",
        path.display()
    );
    Ok(path)
}
