//! The mappings of a process, and the very files that are mapped.
//!
//! The target, and whoever writes to its file system, control what the path of a mapping leads to.
//! So a file is opened through the kernel's own reference to it. It is opened by a path only if the
//! opened file is proven to be the mapped one (proc(5): `/proc/PID/maps`, `/proc/PID/map_files`).

pub mod inspected_files;
pub(super) mod maps;
pub mod unchanged;

use super::process::mount;
use maps::Line;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind, Read as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file, by its path in the process (as the kernel shows it, " (deleted)" removed).
    File(String),
    /// `[vdso]`
    Vdso,
    /// `[uprobes]`: the kernel's trampolines.
    Uprobes,
    /// Memory without a file: heap, stacks, JIT code.
    Anonymous,
    /// Another special mapping, by name.
    Other(String),
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// Whether the mapping is executable.
    pub executable: bool,
    /// Major and minor number of the device.
    pub device: (i32, i32),
    /// Inode number, 0 without a file.
    pub inode: u64,
    /// What is behind the mapping.
    pub backing: Backing,
}

impl Mapping {
    /// The mapping with an empty path, to be kept: a path takes up to 4 KiB, and a process may have
    /// 65,530 mappings. Device and inode still tell its file from others.
    pub fn without_path(&self) -> Mapping {
        let backing = match self.backing {
            Backing::File(_) => Backing::File(String::new()),
            Backing::Other(_) => Backing::Other(String::new()),
            Backing::Vdso => Backing::Vdso,
            Backing::Uprobes => Backing::Uprobes,
            Backing::Anonymous => Backing::Anonymous,
        };
        Mapping { backing, ..*self }
    }
}

/// Most bytes of `/proc/PID/maps` that are read. A process may have 65,530 mappings, which take
/// some six MiB, and each may have a path of four KiB. Addresses beyond this bound are in no known
/// mapping, and are counted as `no_mapping`.
const MAX_MAPS_BYTES: u64 = 16 << 20;

/// All mappings of a process, by address.
///
/// # Errors
/// If `/proc/PID/maps` cannot be read. A line that does not parse is left out.
pub fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let mut text = read_lines(Path::new(&path))
        .map_err(|error| Error::new(error.kind(), format!("read {path}: {error}")))?;
    if text.is_empty() {
        // The first thread has exited; the other threads have the same memory.
        text = maps_of_another_thread(pid);
    }
    Ok(maps::lines(&text).map(mapping).collect())
}

/// The mappings of a process that still has some. An exiting process gives up its memory before it
/// ends.
///
/// # Errors
/// If the mappings cannot be read, or there are none (any more).
pub fn read_some(pid: u32) -> io::Result<Vec<Mapping>> {
    let mappings = read(pid)?;
    if mappings.is_empty() {
        let message = format!("read /proc/{pid}/maps: no mappings (the process has exited)");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(mappings)
}

/// The executable mappings of a process; `None` if they cannot be read or the process has no
/// mappings (any more).
pub fn executable(pid: u32) -> Option<Vec<Mapping>> {
    let mappings = read(pid).ok().filter(|mappings| !mappings.is_empty())?;
    Some(mappings.into_iter().filter(|mapping| mapping.executable).collect())
}

/// Whole lines of a file of any size, up to [`MAX_MAPS_BYTES`].
fn read_lines(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = File::open(path)?.take(MAX_MAPS_BYTES).read_to_end(&mut text)?;
    if read as u64 == MAX_MAPS_BYTES {
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    }
    Ok(text)
}

/// The mappings as a living thread shows them; empty if no thread lives.
fn maps_of_another_thread(pid: u32) -> Vec<u8> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| read_lines(&thread.path().join("maps")).ok())
        .find(|maps| !maps.is_empty())
        .unwrap_or_default()
}

/// Opens the very file that is mapped, even if it is deleted, replaced or in another mount
/// namespace: `/proc/PID/map_files/…` first, then `/proc/PID/root/…` if device and inode agree.
///
/// The first way needs root. The second way fails on file systems that show one device in the
/// mapping and another one in the file's status (btrfs, overlayfs).
///
/// # Errors
/// If the mapping has no file, if it is not a regular file (opening a device can have effects),
/// or if it cannot be opened.
pub fn open(pid: u32, mapping: &Mapping) -> io::Result<File> {
    let Backing::File(path) = &mapping.backing else {
        return Err(Error::new(ErrorKind::InvalidInput, "the mapping has no file"));
    };
    let (start, end) = (mapping.start, mapping.end);
    let error = match open_regular(&format!("/proc/{pid}/map_files/{start:x}-{end:x}"), None) {
        Ok(file) => return Ok(file),
        Err(error) => error,
    };
    let visible = format!("/proc/{pid}/root{path}");
    [format!("{visible} (deleted)"), visible]
        .iter()
        .find_map(|path| open_regular(path, Some(mapping)).ok())
        .ok_or_else(|| match error.kind() {
            ErrorKind::PermissionDenied => {
                let why = mount::refusal(pid, mapping.device);
                let why = why.unwrap_or_else(|| "permission denied (run as root)".to_owned());
                Error::new(error.kind(), format!("open {path}: {why}"))
            }
            kind => Error::new(kind, format!("open {path}: {error}")),
        })
}

/// Opens the mapped file of a process that may be gone or may run another program by now. Beyond
/// the ways of [`open`], it tries the path as `pids` and the daemon itself see it. The opened file
/// is always proven to be the mapped one.
///
/// # Errors
/// As for [`open`].
pub fn open_past(pids: &[u32], mapping: &Mapping) -> io::Result<File> {
    let Backing::File(path) = &mapping.backing else {
        return Err(Error::new(ErrorKind::InvalidInput, "the mapping has no file"));
    };
    let (start, end) = (mapping.start, mapping.end);
    let own = pids.first().map(|pid| format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    let roots = pids.iter().map(|pid| format!("/proc/{pid}/root{path}"));
    let mut special = None;
    for path in own.into_iter().chain(roots).chain([path.clone()]) {
        match open_regular(&path, None) {
            Ok(file) if is_file_of(&file, mapping) => return Ok(file),
            Err(error) if error.kind() == ErrorKind::InvalidInput => special = Some(error),
            _ => {}
        }
    }
    Err(special.unwrap_or_else(|| Error::new(ErrorKind::NotFound, format!("open {path}: is gone"))))
}

/// Whether a file is the mapped one, by its status. Some file systems show another device there
/// (btrfs, overlayfs): then by how our own mapping of the file is shown.
fn is_file_of(file: &File, mapping: &Mapping) -> bool {
    let Ok(status) = file.metadata() else { return false };
    let device = (libc::major(status.dev()) as i32, libc::minor(status.dev()) as i32);
    if (device, status.ino()) == (mapping.device, mapping.inode) {
        return true;
    }
    // Both show the same inode number, unless the file system has too many of them.
    status.ino() == mapping.inode
        && shown_identity(file).is_some_and(|shown| shown == (mapping.device, mapping.inode))
}

/// Device and inode of a file as its mappings show them.
fn shown_identity(file: &File) -> Option<((i32, i32), u64)> {
    let mapped = memmap2::MmapOptions::new().len(1).map_raw_read_only(file).ok()?;
    let start = mapped.as_ptr() as u64;
    let ours = read(std::process::id()).ok()?;
    let shown = ours.iter().find(|mapping| mapping.start == start)?;
    Some((shown.device, shown.inode))
}

/// The backing of a mapping by its name in an event of the kernel. Such names are as in
/// `/proc/PID/maps`, but not escaped.
pub fn backing_of_event(name: &[u8], inode: u64) -> Backing {
    match name {
        b"//anon" => Backing::Anonymous,
        _ if name.starts_with(b"/") && inode == 0 => Backing::Other("[unknown]".to_owned()),
        _ if name.starts_with(b"/") => {
            let name = String::from_utf8_lossy(name);
            Backing::File(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
        }
        _ => backing(name, inode),
    }
}

/// Opens a regular file for reading, if it is the `expected` one.
fn open_regular(path: &str, expected: Option<&Mapping>) -> io::Result<File> {
    let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    reopen_regular(&handle, expected)
}

/// Opens a regular file by its path below a process's root directory, where the process may have
/// put anything. Symbolic links of folders lead to folders below that root directory. A link in
/// place of the file is refused.
///
/// # Errors
/// If there is no such regular file, or the root directory of the process cannot be opened.
pub fn open_in_root(pid: u32, path: &str) -> io::Result<File> {
    let root = File::open(format!("/proc/{pid}/root"))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    reopen_regular(&File::from(openat2(&root, path, flags, Mode::empty(), within)?), None)
}

/// Opens the file of a handle that was opened with `O_PATH`, which does not touch a device or wait
/// for a FIFO. It is opened through our own descriptor, so that nobody can exchange the file in
/// between.
fn reopen_regular(handle: &File, expected: Option<&Mapping>) -> io::Result<File> {
    let status = handle.metadata()?;
    if !status.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let device = (libc::major(status.dev()) as i32, libc::minor(status.dev()) as i32);
    match expected {
        Some(mapping) if (mapping.device, mapping.inode) != (device, status.ino()) => {
            Err(Error::new(ErrorKind::NotFound, "another file is there now"))
        }
        _ => File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())),
    }
}

fn mapping(line: Line<'_>) -> Mapping {
    Mapping {
        start: line.start,
        end: line.end,
        offset: line.offset,
        executable: line.permissions.as_bytes().get(2) == Some(&b'x'),
        device: line.device,
        inode: line.inode,
        backing: backing(line.path, line.inode),
    }
}

fn backing(path: &[u8], inode: u64) -> Backing {
    let name = String::from_utf8_lossy(path);
    match name.as_ref() {
        _ if path.starts_with(b"/") => {
            let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
            // The only character that the kernel escapes in this field.
            Backing::File(name.replace("\\012", "\n"))
        }
        "" | "[heap]" | "[stack]" => Backing::Anonymous,
        "[vdso]" => Backing::Vdso,
        // Since Linux 6.18, a second mapping holds the jumps of optimized probes.
        "[uprobes]" | "[uprobes-trampoline]" => Backing::Uprobes,
        // Memory that the program named itself, with PR_SET_VMA_ANON_NAME.
        _ if inode == 0 && name.starts_with("[anon") => Backing::Anonymous,
        // Thread stacks of kernels before 4.5.
        _ if inode == 0 && name.starts_with("[stack:") => Backing::Anonymous,
        _ => Backing::Other(name.into_owned()),
    }
}

#[cfg(test)]
mod tests;
