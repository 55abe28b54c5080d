//! Files that the parser asks for besides the profiled file. samplerd opens them, because the parser
//! cannot open files.

use super::DebugFiles;
use crate::symbolize::debug_file::{DIRECTORY, FETCHED};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Maximum number of build ids of one profiled file for which servers are asked: its own, and that
/// of a file that it shares with others. A parser that was taken over could tell a server something
/// by build ids of its own choice.
const MAX_REQUESTED: usize = 2;

/// The debug files that a parser may ask for while it reads one profiled file.
pub(super) struct Others<'a> {
    debug_files: &'a dyn DebugFiles,
    /// The profiled file's own build id.
    build_id: &'a str,
    /// Build ids for which a server was asked.
    requested: Vec<String>,
}

impl Others<'_> {
    /// Debug files below [`DIRECTORY`], and from `debug_files`. `requested` are the build ids for
    /// which the profiled file made samplerd ask a server before.
    pub(super) fn of<'a>(
        debug_files: &'a dyn DebugFiles,
        build_id: &'a str,
        requested: Vec<String>,
    ) -> Others<'a> {
        Others { debug_files, build_id, requested }
    }

    /// The build ids for which a server was asked.
    pub(super) fn requested(self) -> Vec<String> {
        self.requested
    }

    /// Opens the file at a path.
    pub(super) fn open(&mut self, path: &[u8]) -> Option<OwnedFd> {
        match path.strip_prefix(FETCHED.as_bytes()) {
            Some(build_id) => self.fetched(str::from_utf8(build_id).ok()?),
            None => debug_file(path),
        }
    }

    fn fetched(&mut self, build_id: &str) -> Option<OwnedFd> {
        let is_known = self.requested.iter().any(|known| known == build_id);
        // The last place is kept for the file's own build id.
        let others = self.requested.iter().filter(|known| *known != self.build_id).count();
        if !is_known && build_id != self.build_id && others + 1 >= MAX_REQUESTED {
            return None;
        }
        if self.debug_files.get(build_id).is_none()
            && self.debug_files.request(build_id)
            && !is_known
        {
            self.requested.push(build_id.to_owned());
        }
        // The request may have found the file in a cache.
        self.debug_files.get(build_id)?.as_fd().try_clone_to_owned().ok()
    }
}

/// Opens the regular file at a path below [`DIRECTORY`]. Any other absolute path stands for the
/// path below [`DIRECTORY`] that ends with it, as in gdb: `/usr/lib/debug/build/a.dwo` for
/// `/build/a.dwo`.
///
/// A file that not everybody may read is not opened, because the owner of the profiled file might
/// not be allowed to read it.
pub(crate) fn debug_file(path: &[u8]) -> Option<OwnedFd> {
    let below = path.strip_prefix(DIRECTORY.as_bytes()).filter(|below| below.starts_with(b"/"));
    let below = below.unwrap_or(path).strip_prefix(b"/")?;
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(DIRECTORY, directory, Mode::empty()).ok()?;
    // Opening a FIFO would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Links that stay below the directory are followed, because some distributions store build ids
    // as links.
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let below = OsStr::from_bytes(below);
    let file = openat2(&directory, below, flags, Mode::empty(), within).ok()?;
    let mode = fstat(&file).ok()?.st_mode;
    let is_regular = FileType::from_raw_mode(mode) == FileType::RegularFile;
    (is_regular && is_for_everybody(&file, mode)).then_some(file)
}

/// Whether everybody may read the file and enter the directories above it.
fn is_for_everybody(file: &OwnedFd, mode: u32) -> bool {
    let others = |mode: u32, wanted: Mode| Mode::from_raw_mode(mode).contains(wanted);
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else {
        return false;
    };
    let directories = path.ancestors().skip(1).take_while(|path| path.starts_with(DIRECTORY));
    let may_enter = |path: &Path| fs::metadata(path).is_ok_and(|it| others(it.mode(), Mode::XOTH));
    others(mode, Mode::ROTH) && directories.into_iter().all(may_enter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers that are asked for any build id, and never answer.
    #[derive(Debug)]
    struct Silent;

    impl DebugFiles for Silent {
        fn get(&self, _: &str) -> Option<std::sync::Arc<std::fs::File>> {
            None
        }

        fn request(&self, _: &str) -> bool {
            true
        }
    }

    #[test]
    fn servers_are_asked_for_one_other_build_id() {
        let mut others = Others::of(&Silent, "01", Vec::new());
        for build_id in ["02", "03", "01", "02", "04"] {
            assert!(others.open(format!("{FETCHED}{build_id}").as_bytes()).is_none());
        }
        let requested = others.requested();
        assert_eq!(requested, ["02", "01"]);
        let mut again = Others::of(&Silent, "01", requested);
        again.open(format!("{FETCHED}05").as_bytes());
        assert_eq!(again.requested(), ["02", "01"]);
    }

    #[test]
    fn only_files_below_the_directory_are_opened() {
        for path in [
            "/etc/passwd",
            "/usr/lib/debug",
            "/usr/lib/debug/",
            "/usr/lib/debug/../../../etc/passwd",
            "/usr/lib/debug//etc/passwd",
            "/usr/lib/debugger",
            "usr/lib/debug/x",
            "/usr/lib/debug/\0",
            "",
        ] {
            assert!(debug_file(path.as_bytes()).is_none(), "{path:?}");
        }
    }
}
