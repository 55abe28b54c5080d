//! `/run/sampler`: the default directory of the API's socket and of tokens.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;

/// The path of the directory.
pub(crate) const PATH: &str = "/run/sampler";
/// Everybody may enter the directory, whatever the umask. Only its owner may write: a writer could
/// replace samplerd's socket.
const MODE: u32 = 0o755;

/// Makes the directory, if it does not exist.
///
/// # Errors
/// If the directory cannot be made.
pub(crate) fn make() -> io::Result<()> {
    fs::create_dir_all("/run")?;
    match fs::create_dir(PATH) {
        Ok(()) => fs::set_permissions(PATH, Permissions::from_mode(MODE)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
