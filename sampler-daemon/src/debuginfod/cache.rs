//! The cache on disk, in the layout of debuginfod's own clients: `BUILD-ID/debuginfo`. An empty
//! file means that no server has the debug file.
//!
//! All paths are opened below the cache's directory, and links are not followed. The directory may
//! belong to another user.

use super::files::MISSING_PERIOD;
use anyhow::Context as _;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, fchmod, fstatvfs, futimens, mkdirat, open, openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum bytes of all files. Beyond the bound, the least recently read files are removed.
const MAX_BYTES: u64 = 2 << 30;
/// A debug file may take one part in `SHARE_OF_FREE` of the disk's free space.
const SHARE_OF_FREE: u64 = 2;
/// Number of files after which the listing of the cache ends, when room is made.
const MAX_ENTRIES: usize = 1 << 16;

/// Age, in seconds, after which an unfinished file counts as abandoned by its writer.
const ABANDONED_SECONDS: i64 = 3600;

/// The name of a debug file in the folder of its build id.
const NAME: &str = "debuginfo";

/// Whether a text is a build id that may become part of a path and a URL: 4 to 64 bytes in
/// lower-case hex.
pub(super) fn is_build_id(text: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (8..=128).contains(&text.len()) && text.len().is_multiple_of(2) && text.bytes().all(is_hex)
}

/// What the cache has for a build id.
#[derive(Debug)]
pub(super) enum Found {
    File(File),
    /// Recently, no server had the debug file.
    Missing,
    Nothing,
}

/// An open cache directory.
#[derive(Debug)]
pub struct Cache {
    directory: OwnedFd,
}

impl Cache {
    /// The path of the cache: `$DEBUGINFOD_CACHE_PATH`, `~/.debuginfod_client_cache` if that
    /// directory exists, or `debuginfod_client` in `$XDG_CACHE_HOME` or `~/.cache`. `variable`
    /// reads the environment.
    pub fn usual(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
        let set = |name: &str| variable(name).filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = set("DEBUGINFOD_CACHE_PATH") {
            return path;
        }
        let home = set("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let old = home.join(".debuginfod_client_cache");
        if old.exists() {
            return old;
        }
        set("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("debuginfod_client")
    }

    /// Opens the cache, and makes its directory if there is none.
    ///
    /// # Errors
    /// If the directory cannot be made or written to.
    pub fn open(path: &Path) -> anyhow::Result<Cache> {
        let place = || format!("{} (set DEBUGINFOD_CACHE_PATH to a directory)", path.display());
        for directory in path.parent().into_iter().chain([path]) {
            match mkdirat(CWD, directory, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).with_context(|| format!("make {}", place())),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty());
        let directory = directory.with_context(|| format!("open {}", place()))?;
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
            .with_context(|| format!("write to {}", place()))?;
        Ok(Cache { directory })
    }

    /// What the cache has for a build id. The file's access time becomes now.
    pub(super) fn find(&self, build_id: &str) -> Found {
        let Ok(file) = self.below(&format!("{build_id}/{NAME}"), OFlags::RDONLY, Mode::empty())
        else {
            return Found::Nothing;
        };
        let file = File::from(file);
        let Ok(metadata) = file.metadata() else { return Found::Nothing };
        if !metadata.is_file() {
            return Found::Nothing;
        }
        if metadata.size() > 0 {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let as_it_is = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            // This call fails for another user's file, which keeps its access time.
            let _ = futimens(&file, &Timestamps { last_access: now, last_modification: as_it_is });
            return Found::File(file);
        }
        let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age < MISSING_PERIOD) {
            return Found::Missing;
        }
        self.remove(build_id);
        Found::Nothing
    }

    /// Removes the file of a build id.
    pub(super) fn remove(&self, build_id: &str) {
        if let Ok(folder) = self.folder(build_id) {
            // The file may be gone already.
            let _ = unlinkat(&folder, NAME, AtFlags::empty());
        }
    }

    /// Remembers that no server has the debug file of a build id.
    pub(super) fn note_missing(&self, build_id: &str) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = self.folder(build_id).and_then(|_| {
            self.below(&format!("{build_id}/{NAME}"), flags, Mode::from_raw_mode(0o666))
        });
        // After an error here, the debug file is only requested again earlier.
        if let Err(error) = made {
            tracing::debug!("debuginfod: remember that {build_id} is missing: {error}");
        }
    }

    /// Creates a file for a build id, with a temporary name until `New::keep`.
    pub(super) fn create(&self, build_id: &str) -> Result<New, Errno> {
        let folder = self.folder(build_id)?;
        remove_abandoned(&folder);
        let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
        let name = format!("{NAME}.{random}");
        let path = format!("{build_id}/{name}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let writer = File::from(self.below(&path, flags, Mode::RUSR | Mode::WUSR)?);
        // The parser gets this descriptor, so that it cannot write to the file.
        let reader = File::from(self.below(&path, OFlags::RDONLY, Mode::empty())?);
        let disk = fstatvfs(&writer)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let max_bytes = free / SHARE_OF_FREE;
        Ok(New { folder, name, writer, reader, max_bytes })
    }

    /// Removes the least recently read files until the cache is within `MAX_BYTES`.
    pub(super) fn make_room(&self) {
        let mut files = self.files();
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        files.sort_unstable_by_key(|file| file.read);
        for file in files {
            if bytes <= MAX_BYTES {
                return;
            }
            let Ok(folder) = self.folder(&file.build_id) else { continue };
            if unlinkat(&folder, file.name, AtFlags::empty()).is_ok() {
                bytes -= file.bytes;
                // Only an empty folder can be removed.
                let _ = unlinkat(&self.directory, file.build_id, AtFlags::REMOVEDIR);
            }
        }
    }

    fn files(&self) -> Vec<CachedFile> {
        let mut found = Vec::new();
        let Ok(folders) = Dir::read_from(&self.directory) else { return found };
        let names = folders
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        for build_id in names.filter(|name| is_build_id(name)) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let Ok(folder) = self.below(&build_id, flags, Mode::empty()) else { continue };
            let Ok(entries) = Dir::read_from(&folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_owned();
                let Ok(of) = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if FileType::from_raw_mode(of.st_mode) == FileType::RegularFile {
                    let (bytes, read) = (512 * of.st_blocks.unsigned_abs(), of.st_atime);
                    found.push(CachedFile { build_id: build_id.clone(), name, bytes, read });
                }
            }
            if found.len() > MAX_ENTRIES {
                break;
            }
        }
        found
    }

    /// Opens the folder of a build id, and makes the folder if there is none.
    fn folder(&self, build_id: &str) -> Result<OwnedFd, Errno> {
        match mkdirat(&self.directory, build_id, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        self.below(build_id, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    fn below(&self, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        // Without `NONBLOCK`, opening a FIFO would wait for the FIFO's other end.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat2(&self.directory, path, flags, mode, within)
    }
}

/// Removes unfinished files whose writers were killed.
fn remove_abandoned(folder: &OwnedFd) {
    let Ok(entries) = Dir::read_from(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_new =
            name.to_bytes().starts_with(NAME.as_bytes()) && name.to_bytes() != NAME.as_bytes();
        let written = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map(|of| of.st_mtime);
        let age = written.map(|at| clock_gettime(ClockId::Realtime).tv_sec - at);
        if is_new && age.is_ok_and(|seconds| seconds > ABANDONED_SECONDS) {
            let _ = unlinkat(folder, name, AtFlags::empty());
        }
    }
}

/// A file in the cache.
struct CachedFile {
    build_id: String,
    name: CString,
    bytes: u64,
    /// Time of the last read, in seconds since the Unix epoch.
    read: i64,
}

/// A file that is being written. Dropping an unkept `New` removes the file.
#[derive(Debug)]
pub(super) struct New {
    folder: OwnedFd,
    name: String,
    pub(super) writer: File,
    pub(super) reader: File,
    /// Maximum bytes of the file, by the disk's free space.
    pub(super) max_bytes: u64,
}

impl New {
    /// Gives the file its name in the cache, and returns the file for reading.
    pub(super) fn keep(self) -> std::io::Result<File> {
        fchmod(&self.writer, Mode::RUSR)?;
        renameat(&self.folder, &self.name, &self.folder, NAME)?;
        self.reader.try_clone()
    }
}

impl Drop for New {
    fn drop(&mut self) {
        // A kept file no longer has this name.
        let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::time::SystemTime;

    const BUILD_ID: &str = "0123456789abcdef";

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("a/b")).unwrap();
        (directory, cache)
    }

    #[test]
    fn only_build_ids_become_paths() {
        assert!(is_build_id(BUILD_ID) && is_build_id(&"0".repeat(128)));
        for wrong in ["", "..", "0123456", "012345678", "0123456G", "0123456789ABCDEF", "../01234"]
        {
            assert!(!is_build_id(wrong), "{wrong:?}");
        }
        assert!(!is_build_id(&"0".repeat(130)));
    }

    #[test]
    fn the_cache_directory_is_that_of_other_clients() {
        let home = tempfile::tempdir().unwrap();
        let of = |set: &[(&str, PathBuf)]| {
            Cache::usual(|name| {
                set.iter().find(|(of, _)| *of == name).map(|(_, path)| path.clone())
            })
        };
        let (at, given) = (home.path().to_owned(), PathBuf::from("/x"));
        let old = at.join(".debuginfod_client_cache");
        assert_eq!(of(&[("HOME", at.clone())]), at.join(".cache/debuginfod_client"));
        let xdg = ("XDG_CACHE_HOME", given.clone());
        assert_eq!(of(&[("HOME", at.clone()), xdg.clone()]), Path::new("/x/debuginfod_client"));
        fs::create_dir(&old).unwrap();
        assert_eq!(of(&[("HOME", at.clone()), xdg]), old);
        assert_eq!(of(&[("HOME", at), ("DEBUGINFOD_CACHE_PATH", given.clone())]), given);
        assert_eq!(of(&[]), Path::new("/.cache/debuginfod_client"));
    }

    #[test]
    fn only_kept_files_are_found_in_the_cache() {
        let (directory, cache) = cache();
        let folder = directory.path().join("a/b").join(BUILD_ID);
        assert!(matches!(cache.find(BUILD_ID), Found::Nothing));
        let mut new = cache.create(BUILD_ID).unwrap();
        new.writer.write_all(b"x").unwrap();
        assert!(matches!(cache.find(BUILD_ID), Found::Nothing));
        drop(new);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        // Unfinished files of killed writers: one is two hours old, one is new.
        for (name, age) in [("debuginfo.abcdef", 2), ("debuginfo.ghijkl", 0)] {
            let file = File::create(folder.join(name)).unwrap();
            let hours = std::time::Duration::from_secs(3600 * age);
            file.set_modified(SystemTime::now() - hours).unwrap();
        }
        let mut new = cache.create(BUILD_ID).unwrap();
        new.writer.write_all(b"x").unwrap();
        let mut kept = new.keep().unwrap();
        assert!(kept.write_all(b"y").is_err(), "it can be written to");
        assert!(matches!(cache.find(BUILD_ID), Found::File(_)));
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), b"x");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "one is abandoned");
        cache.remove(BUILD_ID);
        assert!(matches!(cache.find(BUILD_ID), Found::Nothing));
    }

    #[test]
    fn missing_files_are_remembered_for_a_period() {
        let (directory, cache) = cache();
        cache.note_missing(BUILD_ID);
        assert!(matches!(cache.find(BUILD_ID), Found::Missing));
        let path = directory.path().join("a/b").join(BUILD_ID).join(NAME);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - 2 * MISSING_PERIOD).unwrap();
        assert!(matches!(cache.find(BUILD_ID), Found::Nothing));
    }

    #[test]
    fn symlinks_out_of_the_cache_are_not_followed() {
        let (directory, cache) = cache();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join(NAME), "secret").unwrap();
        std::os::unix::fs::symlink(&outside, directory.path().join("a/b").join(BUILD_ID)).unwrap();
        assert!(matches!(cache.find(BUILD_ID), Found::Nothing));
        assert!(cache.create(BUILD_ID).is_err());
        cache.remove(BUILD_ID);
        assert!(outside.join(NAME).exists());
    }
}
