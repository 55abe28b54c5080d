//! Files that a user names on the command line.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file. It never waits for a writer, as opening a FIFO would.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no regular file (copy it into one)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(open_regular(&path).unwrap_err().to_string().contains("no regular file"));
        assert!(open_regular(directory.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(open_regular(&path).is_err());
        std::fs::write(&path, "text").unwrap();
        assert!(open_regular(&path).is_ok());
    }
}
