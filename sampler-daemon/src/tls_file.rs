//! Files with keys and certificates for TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Beginning of a key or a certificate in PEM (RFC 7468).
const PEM: &[u8] = b"-----BEGIN ";

/// Reads a file of keys or certificates.
///
/// # Errors
/// One line with the file, if it cannot be read or has neither.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match bytes.windows(PEM.len()).any(|window| window == PEM) {
        true => Ok(bytes),
        false => Err(format!("{}: no PEM file (it has no {:?})", path.display(), "-----BEGIN")),
    }
}

/// Checks that not everybody can read a private key.
///
/// # Errors
/// One line with the file and the remedy.
pub fn check_private(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match metadata.permissions().mode() & 0o007 {
        0 => Ok(()),
        _ => Err(format!("{0}: everybody can read the key (chmod 600 {0})", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_pem_or_open_to_all_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(read(&path).unwrap_err().contains("No such file"));
        fs::write(&path, "text").unwrap();
        assert!(read(&path).unwrap_err().contains("no PEM file"));
        fs::write(&path, "bag\n-----BEGIN PRIVATE KEY-----\n").unwrap();
        assert!(read(&path).is_ok());
        let allow = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        allow(0o644);
        assert!(check_private(&path).unwrap_err().contains("chmod 600"));
        allow(0o640);
        assert_eq!(check_private(&path), Ok(()));
    }
}
