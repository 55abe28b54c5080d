//! The parser: a process without rights that reads names from files of other processes.
//!
//! Anybody can write ELF symbols, DWARF and mangled names into a file. A file can be made to crash
//! its reader, to exhaust its memory or time, to overflow its stack, or to take it over. Such a
//! file attacks only the parser. The parser has no user, no capability, no file system and no
//! access to processes of others. It has bounded memory and a socket. samplerd passes the files as
//! descriptors and checks the answers:
//!
//! ```text
//!  samplerd ── path, offsets ──▶ parser
//!           ◀── wants a path ── (the file itself, or a file below /usr/lib/debug)
//!           ─── descriptor, or none ──▶
//!           ◀── lines of each offset ──
//! ```
//!
//! [`DebugFiles`] has files by build id that are not below `/usr/lib/debug`. The parser asks for
//! those as well.
//!
//! A parser that dies, is late or answers wrongly is ended, and the next request starts a new one.
//! The file is blamed, except if the parser died and had read other files before. Then only the
//! file's symbols are read. If reading the symbols fails as well, the file has no names for as long
//! as samplerd lives. Other files keep their names.

mod build_id;
mod child;
pub(crate) mod confine;
mod debug_files;
mod files;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod serve;
mod trap;
mod wire;

pub(crate) use build_id::build_id;
pub use debug_files::{DebugFiles, NoDebugFiles};
pub(crate) use files::debug_file;
pub use serve::{VERB, serve};

use crate::symbolize::Reader;
use crate::unwind::{Module, ModuleId};
use child::{Child, Failure};
use files::Others;
use rustc_hash::FxHashMap;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sampler_common::profile::Line;
use sampler_common::units;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wire::{Answer, Request, Wanted};

/// CPU time for the names of one file, in addition to `TIME_PER_OFFSET`. No honest file took more
/// in tests.
pub const FILE_TIME: Duration = Duration::from_millis(800);
/// CPU time for each offset. An offset takes some 200 µs while its unit is read.
const TIME_PER_OFFSET: Duration = Duration::from_micros(200);
/// CPU time for a file's symbols, after reading its debug information has failed.
const SYMBOLS_TIME: Duration = Duration::from_millis(200);
/// Pause after a parser could not be started.
const START_PAUSE: Duration = Duration::from_secs(5);

/// The path that stands for a file whose own path cannot be sent.
const UNNAMED_FILE: &str = "/file";

/// Counts of failures of parsers, and of files that are read partly or not at all because of the
/// failures.
#[derive(Debug, Default)]
pub struct Counts {
    /// Parsers that died.
    died: AtomicU64,
    /// Parsers that were killed because they were late or sent an invalid message.
    killed: AtomicU64,
    /// Files whose debug information is no longer read because of such a failure.
    plain: AtomicU64,
    /// Files whose names are no longer read because of such failures.
    nameless: AtomicU64,
    /// Number of times that no parser could be started.
    unstarted: AtomicU64,
}

impl Counts {
    /// Returns one line for each count that is not 0.
    pub fn limits(&self) -> Vec<String> {
        let lines = [
            (&self.died, "times a file ended the process that reads names (it was started anew)"),
            (
                &self.killed,
                "times a file held up the process that reads names (it was started anew)",
            ),
            (
                &self.plain,
                "files have no lines and inlined functions: their debug information cannot be read in the memory and time there is",
            ),
            (
                &self.nameless,
                "files have no names: they cannot be read in the memory and time there is",
            ),
            (
                &self.unstarted,
                "times the process that reads names could not be started (see the log): functions are shown by their addresses",
            ),
        ];
        let counts = lines.into_iter().map(|(count, what)| (count.load(Relaxed), what));
        let nonzero = counts.filter(|(count, _)| *count > 0);
        nonzero.map(|(count, what)| format!("{} {what}", units::grouped(count))).collect()
    }
}

/// Maximum number of modules that wait for debug files. At the bound, all are forgotten until their
/// lines are read again.
const MAX_WAITING: usize = crate::unwind::modules::MAX_MODULES;

/// The part of a file that is no longer read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Debug,
    All,
}

/// samplerd's side: starts parser processes when they are needed.
#[derive(Debug)]
pub struct Parser {
    program: PathBuf,
    child: Option<Child>,
    unread: FxHashMap<ModuleId, Unread>,
    debug_files: Box<dyn DebugFiles>,
    /// The build ids of debug files that were requested for a module.
    waiting: FxHashMap<ModuleId, Vec<String>>,
    /// Time of the last failed start of a parser.
    failed: Option<Instant>,
    counts: Arc<Counts>,
}

impl Parser {
    /// A parser that runs `program`, which is samplerd, with [`VERB`]. The first request starts it.
    /// Lines that a module's own file lacks come from `debug_files`.
    pub fn of(program: &Path, debug_files: Box<dyn DebugFiles>) -> Parser {
        Parser {
            program: program.to_owned(),
            child: None,
            unread: FxHashMap::default(),
            debug_files,
            waiting: FxHashMap::default(),
            failed: None,
            counts: Arc::default(),
        }
    }

    /// Returns the counts of failures.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Asks a parser about a module. If a parser dies that has read other files before, a fresh
    /// parser is asked once more.
    fn ask(
        &mut self,
        module: &Module,
        request: &Request,
        file: &File,
        time: Duration,
    ) -> Result<Vec<Answer>, Failure> {
        loop {
            let mut child = match self.child.take() {
                Some(child) => child,
                None => self.start()?,
            };
            let is_fresh = child.is_fresh();
            let requested = self.waiting.remove(&module.id).unwrap_or_default();
            let mut others = Others::of(&*self.debug_files, &module.build_id, requested);
            let answers = child.ask(request, file, &mut others, time);
            let requested = others.requested();
            self.keep_waiting(module, requested);
            let failure = match answers {
                Ok(answers) => {
                    self.child = Some(child);
                    return Ok(answers);
                }
                Err(failure) => failure,
            };
            if failure == Failure::Unreadable {
                if is_fresh {
                    self.child = Some(child);
                    return Err(failure);
                }
                // Other files may have left too little memory.
                continue;
            }
            let count =
                if failure == Failure::Died { &self.counts.died } else { &self.counts.killed };
            count.fetch_add(1, Relaxed);
            if is_fresh || failure != Failure::Died {
                return Err(failure);
            }
        }
    }

    /// Remembers the debug files that were requested for a module.
    fn keep_waiting(&mut self, module: &Module, requested: Vec<String>) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.clear();
        }
        if !requested.is_empty() {
            self.waiting.insert(module.id, requested);
        }
    }

    fn start(&mut self) -> Result<Child, Failure> {
        if self.failed.is_some_and(|at| at.elapsed() < START_PAUSE) {
            return Err(Failure::Unstarted);
        }
        let started = Child::start(&self.program);
        if started.is_err() {
            self.failed = Some(Instant::now());
            self.counts.unstarted.fetch_add(1, Relaxed);
        }
        started
    }

    /// Stops reading a part of a file, and logs that once.
    fn blame(&mut self, module: &Module, unread: Unread, failure: Failure) {
        if self.unread.insert(module.id, unread) == Some(unread) {
            return;
        }
        let (count, what) = match unread {
            Unread::Debug => (&self.counts.plain, "debug information is"),
            Unread::All => (&self.counts.nameless, "names are"),
        };
        count.fetch_add(1, Relaxed);
        tracing::warn!(
            "{:?}: its {what} not read any more: the process that reads names {failure}",
            module.path
        );
    }

    /// Lines of addresses as a module's file states them, innermost inlined function first; none for
    /// an unknown address. The file may be a debug file. The call takes about `time` at most, and at
    /// least [`FILE_TIME`]. `None` if no parser can be started now.
    pub(crate) fn lines_of_addresses(
        &mut self,
        module: &Module,
        file: &File,
        addresses: &[u64],
        time: Duration,
    ) -> Option<Vec<Option<Vec<Line>>>> {
        self.lines_of(Wanted::LinesOfAddresses, module, file, addresses, time.max(FILE_TIME))
    }

    /// The build ids of debug files that were requested for a module, and have not arrived.
    pub(crate) fn requested(&self, module: &Module) -> Vec<String> {
        self.waiting.get(&module.id).cloned().unwrap_or_default()
    }

    fn lines_of(
        &mut self,
        wanted: Wanted,
        module: &Module,
        file: &File,
        places: &[u64],
        time: Duration,
    ) -> Option<Vec<Answer>> {
        let path = Some(&module.path).filter(|path| can_be_sent(path));
        let path = path.map_or(UNNAMED_FILE, String::as_str).to_owned();
        let mut request = Request { wanted, debug: true, path, places: places.to_vec() };
        self.read(module, &mut request, file, time)
    }

    /// Lines of a module, read in about `time` at most. `None` if reading would have taken longer,
    /// or if no parser can be started now.
    fn read(
        &mut self,
        module: &Module,
        request: &mut Request,
        file: &File,
        time: Duration,
    ) -> Option<Vec<Answer>> {
        let count = request.places.len();
        let for_places = TIME_PER_OFFSET * u32::try_from(count).unwrap_or(u32::MAX);
        loop {
            let unread = self.unread.get(&module.id).copied();
            let limit = match unread {
                None => time,
                Some(Unread::Debug) => time.min(SYMBOLS_TIME),
                Some(Unread::All) => return Some(vec![None; count]),
            };
            request.debug = unread.is_none();
            match self.ask(module, request, file, limit + for_places) {
                Ok(answers) => return Some(answers),
                Err(Failure::Unstarted) => return None,
                // Other files of this query were slow. So this file had less time, and is not
                // blamed.
                Err(Failure::Late) if unread.is_none() && time < FILE_TIME => return None,
                Err(failure) => {
                    let more = if unread.is_none() { Unread::Debug } else { Unread::All };
                    self.blame(module, more, failure);
                }
            }
        }
    }
}

impl Reader for Parser {
    fn lines(
        &mut self,
        module: &Module,
        file: &File,
        offsets: &[u64],
        time: Duration,
    ) -> Option<Vec<Answer>> {
        self.lines_of(Wanted::Lines, module, file, offsets, time)
    }

    fn has_more(&mut self, module: &Module) -> bool {
        let Some(mut requested) = self.waiting.remove(&module.id) else { return false };
        let count = requested.len();
        requested.retain(|build_id| self.debug_files.get(build_id).is_none());
        let has_come = requested.len() < count;
        // After a while, `request` tries a failed request again.
        for build_id in &requested {
            self.debug_files.request(build_id);
        }
        self.keep_waiting(module, requested);
        has_come
    }

    fn unread(&self, module: &Module) -> bool {
        self.unread.contains_key(&module.id)
    }

    fn rest(&mut self) {
        self.child = None;
    }
}

fn can_be_sent(path: &str) -> bool {
    path.starts_with('/') && path.len() < wire::MAX_PATH_BYTES && !path.contains('\0')
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
