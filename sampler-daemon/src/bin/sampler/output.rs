//! Output: to standard output, or to a file that is written whole or not at all.

use anyhow::{Result, anyhow};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Standard output is a pipe whose reader has closed it. This is not a failure: the reader needs no
/// more.
#[derive(Debug)]
pub(crate) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for Closed {}

/// Writes to standard output and flushes it.
pub(crate) fn print(contents: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(contents).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Closed.into(),
        _ => anyhow!("write standard output: {}", reason(&error)),
    })
}

/// Writes to standard error why something failed, in one line.
pub(crate) fn complain(why: &str) {
    say(&format!("sampler: {}\n", one_line(why)));
}

/// Writes to standard error. If nobody reads it, the text is dropped, and the exit code does not
/// change.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Checks whether a file can be created at `path`, as far as that can be known in advance. `sampler
/// run` calls this function before the program runs.
pub(crate) fn check_file(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let checked = match fs::metadata(path) {
        Ok(existing) if existing.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(_) => Ok(()),
        Err(_) => fs::metadata(parent.unwrap_or(Path::new("."))).and_then(|of| match of.is_dir() {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
        }),
    };
    checked.map_err(|error| anyhow!("write {}: {}", path.display(), reason(&error)))
}

/// Writes `contents` to `path`. An existing file is replaced whole, by renaming. A failure leaves
/// the existing file unchanged and no other file. Devices and pipes (`/dev/null`) are written to,
/// never replaced.
pub(crate) fn write_file(path: &Path, contents: &[u8]) -> Result<()> {
    let written = match fs::metadata(path) {
        Ok(existing) if existing.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(existing) if existing.is_file() => replace(path, contents, Some(existing.permissions())),
        Ok(_) => OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(contents)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(path, contents, None),
        Err(error) => Err(error),
    };
    written.map_err(|error| anyhow!("write {}: {}", path.display(), reason(&error)))
}

fn replace(path: &Path, contents: &[u8], permissions: Option<fs::Permissions>) -> io::Result<()> {
    // The file that a symbolic link points to is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (mut file, temporary) = temporary_file(&path)?;
    let written = file
        .write_all(contents)
        .and_then(|()| permissions.map_or(Ok(()), |of| file.set_permissions(of)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Creates a new file in the directory of `path`. Renaming works only within one file system.
fn temporary_file(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut attempt = 0;
    loop {
        let temporary = path.with_file_name(format!(".{name}.{}.{attempt}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            // A killed process with the same pid has left the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 16 => {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns an I/O error's message in lower case, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut rest = text.chars();
    rest.next().map(|first| first.to_lowercase().chain(rest).collect()).unwrap_or_default()
}

/// Returns a message as one line without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
