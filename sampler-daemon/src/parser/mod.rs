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
//!           ◀── wants a path ── (the file itself, or a debug file below /usr/lib/debug)
//!           ─── descriptor, or none ──▶
//!           ◀── lines of each offset ──
//! ```
//!
//! If a module's own file has no debug information, the parser reads the debug file of its build id
//! by stated addresses, where [`DebugFiles`] has such a file.
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
mod serve;
mod trap;
mod wire;

pub(crate) use build_id::build_id;
pub use debug_files::{DebugFiles, NoDebugFiles};
pub use serve::{VERB, serve};

use crate::symbolize::Reader;
use crate::unwind::{Module, ModuleId};
use child::{Child, Failure};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
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
        let met = counts.filter(|(count, _)| *count > 0);
        met.map(|(count, what)| format!("{} {what}", units::grouped(count))).collect()
    }
}

/// Maximum number of modules that wait for debug files. At the bound, all are forgotten until their
/// lines are read again.
const MAX_WAITING: usize = crate::unwind::modules::MAX_MODULES;

/// A file that the parser reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// A module's own file.
    Module(ModuleId),
    /// The debug file of a build id.
    DebugFile(String),
}

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
    unread: FxHashMap<Source, Unread>,
    debug_files: Box<dyn DebugFiles>,
    /// Modules whose debug files were requested but were not there.
    waiting: FxHashSet<ModuleId>,
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
            waiting: FxHashSet::default(),
            failed: None,
            counts: Arc::default(),
        }
    }

    /// Returns the counts of failures.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Asks a parser. If a parser dies that has read other files before, a fresh parser is asked
    /// once more.
    fn ask(
        &mut self,
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
            let failure = match child.ask(request, file, time) {
                Ok(answers) => {
                    self.child = Some(child);
                    return Ok(answers);
                }
                Err(failure) => failure,
            };
            let count =
                if failure == Failure::Died { &self.counts.died } else { &self.counts.killed };
            count.fetch_add(1, Relaxed);
            if is_fresh || failure != Failure::Died {
                return Err(failure);
            }
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
    fn blame(&mut self, source: &Source, path: &str, unread: Unread, failure: Failure) {
        if self.unread.insert(source.clone(), unread) == Some(unread) {
            return;
        }
        let (count, what) = match unread {
            Unread::Debug => (&self.counts.plain, "debug information is"),
            Unread::All => (&self.counts.nameless, "names are"),
        };
        count.fetch_add(1, Relaxed);
        tracing::warn!(
            "{path:?}: its {what} not read any more: the process that reads names {failure}"
        );
    }

    /// Lines of places in a file, read in about `time` at most. `None` if reading would have taken
    /// longer, or if no parser can be started now.
    fn read(
        &mut self,
        source: &Source,
        request: &mut Request,
        file: &File,
        time: Duration,
    ) -> Option<Vec<Answer>> {
        let count = request.places.len();
        let for_places = TIME_PER_OFFSET * u32::try_from(count).unwrap_or(u32::MAX);
        loop {
            let unread = self.unread.get(source).copied();
            let limit = match unread {
                None => time,
                Some(Unread::Debug) => time.min(SYMBOLS_TIME),
                Some(Unread::All) => return Some(vec![None; count]),
            };
            request.debug = unread.is_none();
            match self.ask(request, file, limit + for_places) {
                Ok(answers) => return Some(answers),
                Err(Failure::Unstarted) => return None,
                // Other files of this query were slow. So this file had less time, and is not
                // blamed.
                Err(Failure::Late) if unread.is_none() && time < FILE_TIME => return None,
                Err(failure) => {
                    let more = if unread.is_none() { Unread::Debug } else { Unread::All };
                    self.blame(source, &request.path, more, failure);
                }
            }
        }
    }

    /// Lines from the module's own file, and from its debug file below `/usr/lib/debug`.
    fn read_own(
        &mut self,
        module: &Module,
        file: &File,
        offsets: Vec<u64>,
        time: Duration,
    ) -> Option<Vec<Answer>> {
        let path = Some(&module.path).filter(|path| can_be_sent(path));
        let path = path.map_or(UNNAMED_FILE, String::as_str).to_owned();
        let wanted = Wanted::AtOffsets;
        let mut request = Request { wanted, debug: true, path, places: offsets };
        self.read(&Source::Module(module.id), &mut request, file, time)
    }

    /// Lines from the module's debug file in `debug_files`; `None` if that file is not there, or as
    /// in [`Parser::read`].
    fn read_debug_file(
        &mut self,
        module: &Module,
        offsets: &[u64],
        time: Duration,
    ) -> Option<Vec<Answer>> {
        let file = self.debug_files.get(&module.build_id)?;
        let addresses = offsets.iter().map(|offset| module.svma(*offset).unwrap_or(u64::MAX));
        let (wanted, path) = (Wanted::AtAddresses, format!("/debuginfod/{}", module.build_id));
        let mut request = Request { wanted, debug: true, path, places: addresses.collect() };
        self.read(&Source::DebugFile(module.build_id.clone()), &mut request, &file, time)
    }

    /// Requests the debug file of a module that has no debug information of its own.
    fn request_debug_file(&mut self, module: &Module) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.clear();
        }
        if self.debug_files.request(&module.build_id) {
            self.waiting.insert(module.id);
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
        let Some(mut answers) = self.read_debug_file(module, offsets, time) else {
            let answers = self.read_own(module, file, offsets.to_vec(), time)?;
            if answers.iter().flatten().flatten().any(|line| line.line > 0) {
                return Some(answers);
            }
            self.request_debug_file(module);
            // The request may have found the debug file in a cache.
            let Some(more) = self.read_debug_file(module, offsets, time) else {
                return Some(answers);
            };
            return Some(more.into_iter().zip(answers).map(|(more, own)| more.or(own)).collect());
        };
        let missing: Vec<usize> = (0..answers.len()).filter(|at| answers[*at].is_none()).collect();
        if !missing.is_empty() {
            let offsets = missing.iter().map(|at| offsets[*at]).collect();
            let own = self.read_own(module, file, offsets, time)?;
            for (at, answer) in missing.into_iter().zip(own) {
                answers[at] = answer;
            }
        }
        Some(answers)
    }

    fn has_more(&mut self, module: &Module) -> bool {
        if !self.waiting.contains(&module.id) {
            return false;
        }
        let is_here = self.debug_files.get(&module.build_id).is_some();
        if is_here {
            self.waiting.remove(&module.id);
        } else {
            // After a while, `request` tries a failed request again.
            self.debug_files.request(&module.build_id);
        }
        is_here
    }

    fn unread(&self, module: &Module) -> bool {
        let debug_file = Source::DebugFile(module.build_id.clone());
        [Source::Module(module.id), debug_file].iter().any(|of| self.unread.contains_key(of))
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
