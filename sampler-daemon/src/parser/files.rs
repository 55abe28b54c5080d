//! Debug files that the parser asks for. samplerd opens them, because the parser cannot open files.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

/// The directory in which distributions put debug files. The profiled file names the debug file and
/// may be anybody's. Therefore no other directory is allowed.
const DIRECTORY: &str = "/usr/lib/debug";

/// Opens the regular file at a path below [`DIRECTORY`].
pub(super) fn debug_file(path: &[u8]) -> Option<OwnedFd> {
    let below = path.strip_prefix(DIRECTORY.as_bytes())?.strip_prefix(b"/")?;
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
    (FileType::from_raw_mode(mode) == FileType::RegularFile).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

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
