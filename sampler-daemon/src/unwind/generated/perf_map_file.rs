//! Finds and opens the perf map of a process.

use crate::inspect::mappings;
use crate::inspect::process::{exe, started};
use crate::pid_namespace::pids;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// Largest inaccuracy of a process's start and of a file's time.
const INACCURACY: Duration = Duration::from_secs(1);

/// A process that may have a perf map.
#[derive(Debug)]
pub(super) struct Writer {
    pub(in crate::unwind) pid: u32,
    /// Path of its executable as the process sees it; empty if the process is gone.
    pub(in crate::unwind) exe: String,
    /// When the process started: as ticks that identify the process, and as a time. `None` if the
    /// process is gone.
    pub(in crate::unwind) started: Option<(u64, SystemTime)>,
}

impl Writer {
    pub(in crate::unwind) fn of(pid: u32) -> Writer {
        Writer { pid, exe: exe(pid), started: started(pid) }
    }

    /// Opens the perf map. JIT compilers name it by their pid in their own pid namespace, and write
    /// it to `/tmp` of their own mount namespace.
    ///
    /// A pid is used again, and a container's first process always has the same one. So the map may
    /// be another process's, which has ended: such a map was last written before this process
    /// started. Anybody may write to `/tmp`, so the file must belong to the process's user or root.
    pub(super) fn open_map(&self) -> Option<(File, Stamp)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let inner_pid = pids(&status)?.last()?;
        let file = mappings::open_in_root(self.pid, &format!("tmp/perf-{inner_pid}.map")).ok()?;
        let metadata = file.metadata().ok()?;
        let owner = metadata.uid();
        let is_of = |uid: &str| uid.parse() == Ok(owner);
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        if owner != 0 && !uids?.split_whitespace().any(is_of) {
            return None;
        }
        let (_, started) = self.started?;
        if metadata.modified().ok()? + INACCURACY < started {
            return None;
        }
        Some((file, Stamp::of(&metadata)))
    }
}

/// Attributes that show whether a file has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::unwind) struct Stamp {
    changed: (i64, i64),
    pub(in crate::unwind) size: u64,
    /// Number of hard links, 0 for a file that was removed or replaced.
    pub(in crate::unwind) links: u64,
}

impl Stamp {
    pub(in crate::unwind) fn of(it: &fs::Metadata) -> Stamp {
        Stamp { changed: (it.mtime(), it.mtime_nsec()), size: it.size(), links: it.nlink() }
    }

    /// The time of the file's last change, on the clock of samples. A time in the future becomes
    /// now.
    pub(super) fn changed_ns(self) -> u64 {
        let now_ns = |clock| {
            let now = clock_gettime(clock);
            i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
        };
        let changed_ns = i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1);
        let ago_ns = (now_ns(ClockId::Realtime) - changed_ns).max(0);
        u64::try_from(now_ns(ClockId::Monotonic) - ago_ns).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;
    use std::process::{Child, Command, Stdio};

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_map_of_an_earlier_process_or_of_another_user_is_not_opened() {
        let sleeper = Command::new("cat").stdin(Stdio::piped()).spawn().map(Sleeper).unwrap();
        let pid = sleeper.0.id();
        let writer = Writer::of(pid);
        assert!(writer.exe.ends_with("/cat") || !writer.exe.is_empty());
        let path = format!("/tmp/perf-{pid}.map");
        let _ = fs::remove_file(&path);
        assert!(writer.open_map().is_none());
        fs::write(&path, "1000 10 name\n").unwrap();
        assert!(writer.open_map().is_some());
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        assert!(writer.open_map().is_none());
        file.set_modified(SystemTime::now()).unwrap();
        // Only root can give a file away.
        if chown(&path, Some(65533), None).is_ok() {
            assert!(writer.open_map().is_none());
        }
        fs::remove_file(&path).unwrap();
    }
}
