//! The search of large files, by a thread of its own. Samples and questions do not wait for it.
//!
//! A user may have made the file so that its search takes long. So the files of each owner wait in
//! a queue of their own, and the owners take turns.

use super::Version;
use crate::inspect::allocator::contents::Contents;
use crate::inspect::allocator::spec::Spec;
use crate::inspect::code::moving::Executables;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most files of one owner that wait. Further ones wait until a process is inspected again.
const MAX_OF_OWNER: usize = 8;
/// Most files that wait. Each holds a descriptor.
const MAX_WAITING: usize = 128;
/// The thread ends after this time without a file.
const IDLE: Duration = Duration::from_secs(10);

/// A file to search.
#[derive(Debug)]
struct Job {
    version: Version,
    file: Arc<File>,
    path: String,
    spec: &'static Spec,
    executables: Executables,
}

/// A file that was searched, and its path.
pub(super) type Searched = (Version, String, Contents);

/// The files that wait, and the results.
#[derive(Debug, Default)]
struct Queue {
    /// By owner of the file.
    waiting: BTreeMap<u32, VecDeque<Job>>,
    /// The owner whose file was searched last.
    last_owner: u32,
    /// Files that wait or are being searched.
    unfinished: HashSet<Version>,
    searched: Vec<Searched>,
    has_thread: bool,
}

impl Queue {
    /// The next file: the first of the owner after the last one.
    fn next(&mut self) -> Option<Job> {
        let after = self.waiting.range(self.last_owner.saturating_add(1)..).next();
        let owner = *after.or_else(|| self.waiting.iter().next())?.0;
        let jobs = self.waiting.get_mut(&owner)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.waiting.remove(&owner);
        }
        self.last_owner = owner;
        job
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signals a new file to the thread, and a result to whoever waits for it.
    changed: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is valid even after a panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches files until none has come for a while.
    fn work(&self) {
        loop {
            let is_idle = |queue: &mut Queue| queue.waiting.is_empty();
            let waited = self.changed.wait_timeout_while(self.queue(), IDLE, is_idle);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            let Some(job) = queue.next() else {
                queue.has_thread = false;
                return;
            };
            drop(queue);
            let contents = contents(&job);
            let mut queue = self.queue();
            queue.unfinished.remove(&job.version);
            queue.searched.push((job.version, job.path, contents));
            drop(queue);
            self.changed.notify_all();
        }
    }
}

/// Searches a file. What cannot be read is not read again.
fn contents(job: &Job) -> Contents {
    let read = || Contents::read(&job.file, &job.path, job.spec, job.executables);
    let read = catch_unwind(AssertUnwindSafe(read));
    let read = read.unwrap_or_else(|_| Err(io::Error::other("the search has panicked")));
    read.unwrap_or_else(|error| Contents::unreadable(&error))
}

/// The search of large files.
#[derive(Debug, Default)]
pub(super) struct LargeFiles(Arc<Shared>);

impl LargeFiles {
    /// Has a file searched, unless it waits already or too many files wait. Returns
    /// false if there is no thread to search it.
    pub(super) fn search(
        &self,
        version: Version,
        file: &Arc<File>,
        path: &str,
        (spec, executables): (&'static Spec, Executables),
    ) -> bool {
        let owner = file.metadata().map_or(0, |of| of.uid());
        let mut queue = self.0.queue();
        let of_owner = queue.waiting.get(&owner).map_or(0, VecDeque::len);
        let has_room = of_owner < MAX_OF_OWNER && queue.unfinished.len() < MAX_WAITING;
        if has_room && !queue.unfinished.contains(&version) {
            let (file, path) = (Arc::clone(file), path.to_owned());
            let job = Job { version, file, path, spec, executables };
            queue.waiting.entry(owner).or_default().push_back(job);
            queue.unfinished.insert(version);
        }
        if !queue.has_thread {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("files".into());
            queue.has_thread = thread.spawn(move || shared.work()).is_ok();
        }
        let has_thread = queue.has_thread;
        drop(queue);
        self.0.changed.notify_all();
        has_thread
    }

    /// The files that were searched since the last call.
    pub(super) fn take(&self) -> Vec<Searched> {
        std::mem::take(&mut self.0.queue().searched)
    }

    /// Waits until every file that waits has been searched, or until the time is over.
    pub(super) fn wait(&self, most: Duration) {
        let is_busy = |queue: &mut Queue| queue.has_thread && !queue.unfinished.is_empty();
        let _ = self.0.changed.wait_timeout_while(self.0.queue(), most, is_busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::allocator::spec;

    #[test]
    fn owners_take_turns() {
        let file = Arc::new(File::open("/dev/null").unwrap());
        let version = Version::of(&file).unwrap();
        let job = |path: String| Job {
            version,
            file: Arc::clone(&file),
            path,
            spec: &spec::EMPTY,
            executables: Executables::default(),
        };
        let mut queue = Queue::default();
        for (owner, count) in [(0, 2), (7, 3), (u32::MAX, 1)] {
            let jobs = (0..count).map(|number| job(format!("{owner} {number}")));
            queue.waiting.insert(owner, jobs.collect());
        }
        let order: Vec<String> = std::iter::from_fn(|| queue.next()).map(|job| job.path).collect();
        assert_eq!(order, ["7 0", "4294967295 0", "0 0", "7 1", "0 1", "7 2"]);
    }

    #[test]
    fn a_file_is_searched_and_found() {
        let files = LargeFiles::default();
        let path = std::env::current_exe().unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let version = Version::of(&file).unwrap();
        let with = (&spec::EMPTY, Executables::default());
        assert!(files.search(version, &file, "/program", with));
        assert!(files.search(version, &file, "/program", with));
        files.wait(Duration::from_secs(60));
        let found = files.take();
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == version && found[0].2.is_program);
    }
}
