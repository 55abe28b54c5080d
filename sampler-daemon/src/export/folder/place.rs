//! Files below a folder. Names are made here only, links are not followed, and a file gets its name
//! when it is whole.

use anyhow::{Context as _, ensure};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, fchmod, fchown, fstat, mkdirat, open,
    openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Largest number of entries that are read of a folder. Other hosts may write there too.
const MAX_ENTRIES: usize = 1 << 20;
/// Maximum bytes of a file that is read. Those that samplerd writes have some hundred KiB.
const MAX_READ_BYTES: u64 = 1 << 30;
/// Prefix of files that are being written. No engine reads a file whose name begins so.
const TEMPORARY: &str = ".";

/// An open folder of an operator.
pub(super) struct Place {
    folder: OwnedFd,
    /// The rights of its owner and group. Files below have the same: others never have any.
    mode: Mode,
    /// Its group, which files below belong to.
    group: Gid,
}

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) bytes: u64,
}

impl Place {
    /// Opens a folder.
    pub(super) fn open(path: &Path) -> anyhow::Result<Place> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty()).context("open the folder")?;
        let of = fstat(&folder).context("ask for the folder's rights")?;
        let mode = Mode::from_raw_mode(of.st_mode) & (Mode::RWXU | Mode::RWXG);
        Ok(Place { folder, mode, group: Gid::from_raw(of.st_gid) })
    }

    /// Checks that files can be written to a folder below.
    pub(super) fn check(&self, folders: &[&str]) -> anyhow::Result<()> {
        let name = temporary("check");
        let folder = self.make(folders)?;
        self.create(&folder, &name).context("write to the folder")?;
        unlinkat(&folder, &name, AtFlags::empty()).context("remove a file")
    }

    /// Reads a file; `None` if it is gone.
    pub(super) fn read(&self, folders: &[&str], name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let path = folders.iter().chain([&name]).copied().collect::<Vec<_>>().join("/");
        // Opening a FIFO would wait for its writer.
        let opened = below(&self.folder, &path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error).context("open it"),
        };
        let of = file.metadata().context("open it")?;
        ensure!(of.is_file(), "it is no regular file");
        ensure!(of.len() <= MAX_READ_BYTES, "it has more than {MAX_READ_BYTES} bytes (divide it)");
        let mut bytes = Vec::new();
        // The file may grow meanwhile.
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes).context("read it")?;
        Ok(Some(bytes))
    }

    /// Names of all entries of a folder, sorted; `None` if there is no such folder.
    pub(super) fn entries(&self, folders: &[&str]) -> anyhow::Result<Option<Vec<String>>> {
        let Some(folder) = self.open_below(folders)? else { return Ok(None) };
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder).context("read the folder")? {
            let entry = entry.context("read the folder")?;
            ensure!(names.len() < MAX_ENTRIES, "there are more than {MAX_ENTRIES} entries");
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    /// Writes a file, whole or not at all. Returns the bytes of the file of this name that was
    /// replaced.
    pub(super) fn write(&self, folders: &[&str], name: &str, bytes: &[u8]) -> anyhow::Result<u64> {
        let folder = self.make(folders)?;
        let replaced = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let replaced = replaced.map_or(0, |of| of.st_size.unsigned_abs());
        let unfinished = temporary(name);
        let written = self.create(&folder, &unfinished).and_then(|mut file| {
            file.write_all(bytes).context("write")?;
            // A name without contents would stop whoever reads the folder after a power cut.
            file.sync_data().context("write")?;
            renameat(&folder, &unfinished, &folder, name).context("name the file")
        });
        if written.is_err() {
            let _ = unlinkat(&folder, &unfinished, AtFlags::empty());
        }
        written.map(|()| replaced)
    }

    fn create(&self, folder: &OwnedFd, name: &str) -> anyhow::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = below(folder, name, flags, Mode::RUSR | Mode::WUSR).context("make a file")?;
        self.share(&file, Mode::RUSR | Mode::WUSR | self.mode & Mode::RGRP);
        Ok(File::from(file))
    }

    /// Gives a new file its group and rights. Where that is not allowed, the file stays its owner's
    /// alone, as samplerd's umask says.
    fn share(&self, file: &OwnedFd, mode: Mode) {
        let _ = fchown(file, None, Some(self.group));
        // The kernel passes this bit on to folders in a folder that has it.
        let passed_on = fstat(file).map_or(0, |of| of.st_mode);
        let _ = fchmod(file, mode | Mode::from_raw_mode(passed_on) & Mode::SGID);
    }

    /// Opens a folder below, and makes it if there is none.
    fn make(&self, folders: &[&str]) -> anyhow::Result<OwnedFd> {
        let mut folder = self.folder.try_clone().context("open the folder")?;
        for name in folders {
            let made = match mkdirat(&folder, *name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error).with_context(|| format!("make {name}")),
            };
            folder = open_folder(&folder, name).with_context(|| format!("open {name}"))?;
            if made {
                self.share(&folder, self.mode | Mode::RWXU);
            }
        }
        Ok(folder)
    }

    /// Opens a folder below; `None` if there is none.
    fn open_below(&self, folders: &[&str]) -> anyhow::Result<Option<OwnedFd>> {
        let mut folder = self.folder.try_clone().context("open the folder")?;
        for name in folders {
            folder = match open_folder(&folder, name) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(error).with_context(|| format!("open {name}")),
            };
        }
        Ok(Some(folder))
    }

    /// Opens a folder below; `None` if there is none, or if it cannot be opened.
    fn find(&self, folders: &[&str]) -> Option<OwnedFd> {
        self.open_below(folders).ok().flatten()
    }

    /// Names of the folders in a folder, sorted, that begin with `prefix`.
    pub(super) fn folders(&self, folders: &[&str], prefix: &str) -> Vec<String> {
        let mut names = self.names(folders);
        names.retain(|(name, is_folder)| *is_folder && name.starts_with(prefix));
        names.sort_unstable();
        names.into_iter().map(|(name, _)| name).collect()
    }

    /// Files in a folder whose names are `wanted`, sorted.
    pub(super) fn files(&self, folders: &[&str], wanted: impl Fn(&str) -> bool) -> Vec<Entry> {
        let Some(folder) = self.find(folders) else { return Vec::new() };
        let names = self.names(folders).into_iter().map(|(name, _)| name);
        let entry = |name: String| {
            let of = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let is_file = FileType::from_raw_mode(of.st_mode) == FileType::RegularFile;
            is_file.then(|| Entry { name, bytes: of.st_size.unsigned_abs() })
        };
        let mut files: Vec<Entry> = names.filter(|name| wanted(name)).filter_map(entry).collect();
        files.sort_unstable();
        files
    }

    fn names(&self, folders: &[&str]) -> Vec<(String, bool)> {
        let Some(folder) = self.find(folders) else { return Vec::new() };
        let Ok(entries) = Dir::read_from(&folder) else { return Vec::new() };
        let name = |entry: rustix::fs::DirEntry| {
            let is_folder = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            Some((entry.file_name().to_str().ok()?.to_owned(), is_folder))
        };
        entries.flatten().take(MAX_ENTRIES).filter_map(name).collect()
    }

    /// Removes a file, and its folders if nothing else is in them.
    pub(super) fn remove(&self, folders: &[&str], name: &str) -> bool {
        let removed = self
            .find(folders)
            .is_some_and(|folder| unlinkat(&folder, name, AtFlags::empty()).is_ok());
        for depth in (1..folders.len()).rev() {
            let (above, name) = (&folders[..depth], folders[depth]);
            // Only an empty folder can be removed.
            let Some(parent) = self.find(above) else { break };
            if unlinkat(&parent, name, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
        removed
    }
}

/// A name for a file that is being written.
fn temporary(name: &str) -> String {
    let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
    format!("{TEMPORARY}{name}.{random}")
}

/// The name of a file that is, or was, being written under this name.
pub(super) fn finished_name(name: &str) -> Option<&str> {
    name.strip_prefix(TEMPORARY)?.rsplit_once('.').map(|(name, _)| name)
}

fn open_folder(folder: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    below(folder, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

fn below(folder: &OwnedFd, name: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(folder, name, flags | OFlags::CLOEXEC, mode, within)
}
