//! `/run/sampler`: the API's socket and its tokens are there unless other places are given.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;

/// Where it is.
pub(crate) const PATH: &str = "/run/sampler";
/// Everybody may enter it, whatever the umask. Whoever can write there can put another socket in the place of samplerd's.
const MODE: u32 = 0o755;

/// Makes it, if it is not there.
///
/// # Errors
/// If it cannot be made.
pub(crate) fn make() -> io::Result<()> {
    fs::create_dir_all("/run")?;
    match fs::create_dir(PATH) {
        Ok(()) => fs::set_permissions(PATH, Permissions::from_mode(MODE)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
