//! Decides whether a build's inputs and outputs are those of the last successful build.
//!
//! A stamp is a file with one hash over everything that can change the outcome. Contents are
//! compared instead of times, so that a fresh checkout or a touched file causes no build.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A hash of everything that was added to it.
///
/// The hash guards against a forgotten build, not against an adversary: 64 bits of SipHash suffice.
#[derive(Default)]
pub(crate) struct Stamp(DefaultHasher);

impl Stamp {
    /// Adds a text.
    pub(crate) fn text(&mut self, text: &str) {
        text.hash(&mut self.0);
    }

    /// Adds a file's content, or the fact that the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn file(&mut self, file: &Path) -> Result<()> {
        match fs::read(file) {
            Ok(content) => content.hash(&mut self.0),
            Err(error) if error.kind() == ErrorKind::NotFound => self.text("missing"),
            Err(error) => {
                return Err(error).with_context(|| format!("read {}", file.display()));
            }
        }
        Ok(())
    }

    /// Adds every file below a directory, with its path. Files below `except` are left out.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn tree(&mut self, directory: &Path, except: &Path) -> Result<()> {
        let mut files = Vec::new();
        list(directory, except, &mut files)
            .with_context(|| format!("list {}", directory.display()))?;
        files.sort();
        for file in files {
            file.strip_prefix(directory).unwrap_or(&file).hash(&mut self.0);
            self.file(&file)?;
        }
        Ok(())
    }

    /// The text to store and to compare.
    pub(crate) fn finish(self) -> String {
        format!("{:016x}", self.0.finish())
    }
}

fn list(directory: &Path, except: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if path == except {
            continue;
        }
        if entry.file_type()?.is_dir() {
            list(&path, except, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_changes_with_content_name_and_absence_only() {
        let directory = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        let skipped = directory.join("target");
        fs::create_dir_all(&skipped).unwrap();
        let stamp = || {
            let mut stamp = Stamp::default();
            stamp.tree(&directory, &skipped).unwrap();
            stamp.file(&directory.join("b")).unwrap();
            stamp.finish()
        };
        fs::write(directory.join("a"), "1").unwrap();
        let first = stamp();
        fs::write(skipped.join("object"), "1").unwrap();
        fs::write(directory.join("a"), "1").unwrap();
        assert_eq!(stamp(), first);
        fs::write(directory.join("a"), "2").unwrap();
        let second = stamp();
        assert_ne!(second, first);
        fs::rename(directory.join("a"), directory.join("b")).unwrap();
        assert_ne!(stamp(), second);
        fs::remove_dir_all(&directory).unwrap();
    }
}
