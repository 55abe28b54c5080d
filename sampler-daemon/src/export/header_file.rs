//! Headers with secrets for backends, in a file that only its owner can read.

use crate::secret_file::read_secret;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use std::path::Path;

/// Reads lines `NAME: VALUE`. Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// One line. The line never contains a header's value.
pub fn read(path: &Path) -> Result<HeaderMap, String> {
    let text = read_secret(path, "the headers")?;
    parse(&text).map_err(|error| format!("read the headers {}: {error}", path.display()))
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

    #[test]
    fn headers_are_read_and_shown_in_no_log() {
        let headers = parse("# mine\n\nAuthorization: Bearer a:b\nX-Scope-OrgID:7\n").unwrap();
        assert_eq!((&headers["authorization"], headers.len()), (&"Bearer a:b".parse().unwrap(), 2));
        assert!(!format!("{headers:?}").contains("Bearer"), "no log has it");
    }

    #[test]
    fn an_invalid_header_line_is_named_without_its_secret() {
        for text in ["secret", "a b: secret", "x: y\nname: secret\u{7}"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("line ") && !error.contains("secret"), "{error}");
        }
    }
}
