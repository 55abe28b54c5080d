//! The secret of one start of samplerd: clients that know it may read profiles over TCP.

use crate::run_directory;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use sampler_common::units::hex;
use std::fs;
use std::hint::black_box;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// 128 random bits.
const BYTES: usize = 16;

/// The secret of a client. It is printed only in the URL at the start, so the type has no `Debug`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new random token from the kernel.
    ///
    /// # Errors
    /// If the kernel has no randomness.
    pub fn new() -> Result<Token, Errno> {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        Ok(Token(hex(&bytes)))
    }

    /// The token's text, as in the URL.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Checks the values of a request's `Authorization` headers; `None` is a value that is no text.
    /// Exactly one header is needed, `Bearer TOKEN`.
    ///
    /// # Errors
    /// Why the request is not to be answered.
    pub fn check<'a>(
        &self,
        headers: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Result<(), TokenError> {
        let mut headers = headers.into_iter();
        match (headers.next(), headers.next()) {
            (None, _) => Err(TokenError::Missing),
            (Some(_), Some(_)) => Err(TokenError::Several),
            (Some(header), None) => {
                let given = header.and_then(|header| header.strip_prefix("Bearer "));
                let is_right = given.is_some_and(|given| self.is(given.trim()));
                if is_right { Ok(()) } else { Err(TokenError::Wrong) }
            }
        }
    }

    /// Whether `given` is this token. The time of the comparison does not depend on where the two
    /// differ.
    fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differences = own.iter().zip(given).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        own.len() == given.len() && differences == 0
    }
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The request has no token.
    Missing,
    /// The request has another token, or another form.
    Wrong,
    /// The request has several tokens.
    Several,
}

/// A file with a token, readable by its owner only; removed on drop.
#[derive(Debug)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The default path of the token file of a TCP port.
    pub fn usual(port: u16) -> PathBuf {
        format!("{}/tcp-{port}.token", run_directory::PATH).into()
    }

    /// Writes a token. An existing file is replaced, and a symbolic link is not followed.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub fn write(path: &Path, token: &Token) -> Result<TokenFile, String> {
        let failed = |error| {
            format!("write the token {}: {error} (give another --token-file)", path.display())
        };
        if path.parent() == Some(Path::new(run_directory::PATH)) {
            run_directory::make().map_err(failed)?;
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{}", token.text()));
        written.map(|()| TokenFile(path.to_owned())).map_err(failed)
    }

    /// Reads the token in a file.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub fn read(path: &Path) -> Result<String, String> {
        let text = fs::read_to_string(path).map_err(|error| {
            format!(
                "read the token {}: {error} (give the --token-file of samplerd as SAMPLER_TOKEN_FILE)",
                path.display()
            )
        })?;
        Ok(text.trim().to_owned())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // It is no error if the file is gone already.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("token"), directory.path().join("other"));
        fs::write(&other, "as it was").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let token = Token::new().unwrap();
        let file = TokenFile::write(&path, &token).unwrap();
        assert_eq!(TokenFile::read(&path).unwrap(), token.text());
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&other).unwrap(), "as it was");
        drop(file);
        assert!(TokenFile::read(&path).unwrap_err().contains("SAMPLER_TOKEN_FILE"));
        let nowhere = directory.path().join("no/token");
        assert!(TokenFile::write(&nowhere, &token).unwrap_err().contains("--token-file"));
    }

    #[test]
    fn a_token_equals_only_itself() {
        let (token, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert!(token.text().len() == 32 && token.text() != other.text());
        assert!(token.text().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(token.is(token.text()) && !token.is(other.text()));
        let text = token.text();
        for wrong in ["", &text[..31], &format!("{text}0"), &text.to_uppercase().replace('0', "O")]
        {
            // A token of digits alone is the same in upper case.
            assert!(wrong == text || !token.is(wrong), "{wrong:?}");
        }
        for at in 0..32 {
            let mut wrong = text.to_owned().into_bytes();
            wrong[at] ^= 1;
            assert!(!token.is(std::str::from_utf8(&wrong).unwrap()));
        }
    }
}
