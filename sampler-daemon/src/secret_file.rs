//! Files with secrets, which only their owner can read.

use crate::regular_file::open_regular;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Maximum size of a file.
const MAX_BYTES: u64 = 64 << 10;

/// Reads a text that nobody but the file's owner can read. `what` names the contents.
///
/// # Errors
/// One line. The line contains nothing of the text.
pub fn read_secret(path: &Path, what: &str) -> Result<String, String> {
    read(path, what, true)
}

/// Reads a text that anybody may read.
///
/// # Errors
/// One line.
pub fn read_public(path: &Path, what: &str) -> Result<String, String> {
    read(path, what, false)
}

fn read(path: &Path, what: &str, is_secret: bool) -> Result<String, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("read {what} {name}: {error}");
    let mut file = open_regular(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if is_secret && mode & 0o077 != 0 {
        return Err(format!(
            "read {what} {name}: others can read it, mode {mode:o} (chmod 600 {name})"
        ));
    }
    let mut text = String::new();
    let read = file.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > MAX_BYTES {
        return Err(format!("read {what} {name}: is larger than {MAX_BYTES} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn secrets_that_others_can_read_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "secret").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_secret(&path, "the key").unwrap_err();
            assert!(error.contains("chmod 600") && !error.contains("secret"), "{error}");
            assert_eq!(read_public(&path, "the key").unwrap(), "secret");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(read_secret(&path, "the key").unwrap(), "secret");
        assert!(read_secret(directory.path(), "the key").unwrap_err().contains("no regular file"));
        let none = directory.path().join("none");
        assert!(read_public(&none, "the key").unwrap_err().contains("none"));
        fs::write(directory.path().join("large"), vec![b'x'; MAX_BYTES as usize + 1]).unwrap();
        let large = directory.path().join("large");
        assert!(read_public(&large, "the key").unwrap_err().contains("larger than"));
    }
}
