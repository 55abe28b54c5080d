//! Headers with secrets for backends, in a file that only its owner can read.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Maximum size of a header file.
const MAX_BYTES: u64 = 64 << 10;

/// Reads lines `NAME: VALUE`. Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// One line. The line never contains a header's value.
pub fn read(path: &Path) -> Result<HeaderMap, String> {
    let name = path.display();
    let failed = |error: std::io::Error| format!("read the headers {name}: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(format!("read the headers {name}: is no regular file"));
    }
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "read the headers {name}: others can read it, mode {mode:o} (chmod 600 {name})"
        ));
    }
    let mut text = String::new();
    let read = file.by_ref().take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > MAX_BYTES {
        return Err(format!("read the headers {name}: is larger than {MAX_BYTES} bytes"));
    }
    parse(&text).map_err(|error| format!("read the headers {name}: {error}"))
}

fn parse(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let header = line.split_once(':').and_then(|(name, value)| {
            let name: HeaderName = name.trim().parse().ok()?;
            let mut value: HeaderValue = value.trim().parse().ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let (name, value) = header.ok_or_else(|| {
            format!("line {number} is no header (try Authorization: Bearer TOKEN)")
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn header_files_readable_by_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        fs::write(&path, "# mine\n\nAuthorization: Bearer a:b\nX-Scope-OrgID:7\n").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert!(error.contains("chmod 600") && !error.contains("Bearer"), "{error}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        let headers = read(&path).unwrap();
        assert_eq!((&headers["authorization"], headers.len()), (&"Bearer a:b".parse().unwrap(), 2));
        assert!(!format!("{headers:?}").contains("Bearer"), "no log has it");
        assert!(read(directory.path()).unwrap_err().contains("no regular file"));
        assert!(read(&directory.path().join("none")).unwrap_err().contains("none"));
    }

    #[test]
    fn an_invalid_header_line_is_named_without_its_secret() {
        for text in ["secret", "a b: secret", "x: y\nname: secret\u{7}"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("line ") && !error.contains("secret"), "{error}");
        }
    }
}
