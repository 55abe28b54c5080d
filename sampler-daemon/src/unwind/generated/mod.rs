//! Generated code of one process, and its names at the times of the samples.
//!
//! A perf map names the code at an address *now*. Compilers reuse an address for another function,
//! and some rewrite the whole map (`jcmd PID Compiler.perfmap`). So a name is looked up when its
//! sample is read. An address keeps the names of all its samples, and a frame has the index of its
//! name. An address without a name gets the first name that is found.
//!
//! A rewritten map is taken for right from its last write on. A line that is added has no time: it
//! was written after the last refresh, and not after the file's last change. A sample from between
//! these times may be of the earlier function or of the new one. It gets the earlier name with a
//! `?`.

pub(super) mod jit;
pub(super) mod name_budget;
pub(super) mod perf_map;
mod perf_map_file;
pub(super) mod replaced_names;
mod rewritten;

use crate::inspect::process::is_there;
use crate::inspect::process::runtime;
use name_budget::{NameBudget, NameShare};
use perf_map::{AddedLines, PerfMap};
use perf_map_file::{Stamp, Writer};
use replaced_names::{Added, EarlierName, ReplacedNames};
use rewritten::Contents;
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};
use sampler_common::note::Runtime;
use sampler_common::share::Holder;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Most sampled addresses whose names are kept. Further addresses have only their latest name.
const MAX_ADDRESSES: usize = 64 * 1024;

/// Most names of one address. Samples with further names get the last name.
const MAX_NAMES: usize = 64;

/// Most bytes of perf maps that are read for one process at once, and in each second.
const READ_BYTES: u64 = 16 << 20;

/// Shortest time between two searches for a map that does not exist, or that is no longer the file
/// at its path.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);

/// Largest delay of a sample. The contents of a rewritten map are kept for that time.
const LATE_NS: u64 = 10_000_000_000;

/// The generated code of one program image.
pub struct GeneratedCode {
    state: Mutex<State>,
    /// The runtime, once it is known.
    runtime: OnceLock<Runtime>,
}

struct State {
    writer: Writer,
    may_open: bool,
    open: Option<Open>,
    searched: Option<Instant>,
    /// The names in the map now.
    map: PerfMap,
    /// The names before the map was last rewritten, and the time of the rewriting
    /// (`CLOCK_MONOTONIC`, nanoseconds).
    earlier: Option<(u64, PerfMap)>,
    /// Names that lines added to the map have replaced lately.
    replaced: ReplacedNames,
    /// Time of the last refresh (`CLOCK_MONOTONIC`, nanoseconds).
    refreshed_ns: u64,
    /// Names of sampled addresses, in the order of their samples.
    names: FxHashMap<u64, Vec<Arc<str>>>,
    /// Time of the last sample for which the map was checked.
    names_refreshed_ns: u64,
    /// Bytes that may still be read.
    allowance: u64,
    granted: Instant,
    /// Whether a part of the map has not been read yet.
    is_behind: bool,
    /// Bytes of all names.
    share: NameShare,
}

/// A perf map that is held open.
struct Open {
    file: File,
    stamp: Stamp,
    contents: Contents,
    /// Size when the file was opened. Earlier lines may have replaced each other at any time.
    first_size: u64,
}

impl fmt::Debug for GeneratedCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GeneratedCode").finish_non_exhaustive()
    }
}

impl GeneratedCode {
    /// Reads the perf map of a process, if the process has one and may hold it open.
    #[cfg(test)]
    pub(crate) fn of(pid: u32, may_open: bool) -> GeneratedCode {
        GeneratedCode::within(Holder::of_unknown_user(pid), may_open, &Arc::default())
    }

    /// As for [`GeneratedCode::of`], with names that count against a budget.
    pub(super) fn within(
        by: Holder<u32>,
        may_open: bool,
        budget: &Arc<NameBudget>,
    ) -> GeneratedCode {
        let mut state = State {
            writer: Writer::of(by.process),
            may_open,
            open: None,
            searched: None,
            map: PerfMap::default(),
            earlier: None,
            replaced: ReplacedNames::default(),
            refreshed_ns: 0,
            names: FxHashMap::default(),
            names_refreshed_ns: 0,
            allowance: READ_BYTES,
            granted: Instant::now(),
            is_behind: false,
            share: NameShare::of(budget, by.user),
        };
        state.refresh();
        GeneratedCode { state: Mutex::new(state), runtime: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid even after a panic: it is still a map of names.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the map again.
    pub fn refresh(&self) {
        self.state().refresh();
    }

    /// The process that has the code.
    pub fn pid(&self) -> u32 {
        self.state().writer.pid
    }

    /// Whether the process still exists.
    pub fn is_running(&self) -> bool {
        let (pid, started) = {
            let state = self.state();
            (state.writer.pid, state.writer.started)
        };
        started.is_some_and(|(ticks, _)| is_there(pid, ticks))
    }

    /// The runtime that makes the code. The first answer about a known runtime is kept: it may have
    /// taken the reading of a large file.
    pub fn runtime(&self) -> Runtime {
        if let Some(known) = self.runtime.get() {
            return *known;
        }
        let found = match self.is_running() {
            true => runtime::of_process(self.pid()),
            false => runtime::of_path(&self.state().writer.exe),
        };
        if found != Runtime::Other {
            let _ = self.runtime.set(found);
        }
        found
    }

    /// Whether a perf map was found.
    pub fn has_map(&self) -> bool {
        self.state().open.is_some()
    }

    /// Whether the code may hold its map open.
    pub(super) fn may_open(&self) -> bool {
        self.state().may_open
    }

    /// Ends the code, which no process has any more: closes the map and forgets names that no
    /// sample has used.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.may_open = false;
        state.open = None;
        let map = std::mem::take(&mut state.map);
        let earlier = state.earlier.take().map_or(0, |(_, map)| map.taken());
        state.replaced = ReplacedNames::default();
        state.share.give(map.taken() + earlier);
    }

    /// Index of an address's name at a time.
    pub(super) fn naming(&self, address: u64, time_ns: u64) -> u32 {
        let mut state = self.state();
        if std::mem::replace(&mut state.names_refreshed_ns, time_ns) != time_ns {
            state.refresh();
        }
        state.naming(address, time_ns)
    }

    /// A name of an address, by index.
    pub fn name(&self, address: u64, naming: u32) -> Option<Arc<str>> {
        let state = self.state();
        match state.names.get(&address) {
            Some(names) => names.get(naming as usize).cloned(),
            None => state.map.find(address).cloned(),
        }
    }
}

impl State {
    fn naming(&mut self, address: u64, time_ns: u64) -> u32 {
        if self
            .earlier
            .as_ref()
            .is_some_and(|(until_ns, _)| until_ns.saturating_add(LATE_NS) < time_ns)
        {
            self.forget_earlier();
        }
        let now = self.name_at(address, time_ns);
        let is_full = self.names.len() >= MAX_ADDRESSES;
        let Some(names) = self.names.get_mut(&address) else {
            if let Some(name) = now
                && !is_full
                && self.share.take(name.len())
            {
                self.names.insert(address, vec![name]);
            }
            return 0;
        };
        let last = names.len() - 1;
        let index = match now {
            // The map no longer has the name.
            None => last,
            Some(name) => match names.iter().position(|known| *known == name) {
                Some(index) => index,
                None if names.len() >= MAX_NAMES || !self.share.take(name.len()) => last,
                None => {
                    names.push(name);
                    last + 1
                }
            },
        };
        index as u32
    }

    /// The name that the map had for an address at a time, with a `?` if it may have had another.
    fn name_at(&self, address: u64, time_ns: u64) -> Option<Arc<str>> {
        let map = match &self.earlier {
            Some((until_ns, earlier)) if time_ns < *until_ns => earlier,
            _ => &self.map,
        };
        match self.replaced.find(address, time_ns) {
            Some(EarlierName::Certain(name)) => Some(Arc::clone(name)),
            Some(EarlierName::Doubtful(name)) => Some(Arc::from(format!("{name}?"))),
            None => map.find(address).cloned(),
        }
    }

    /// Reads the new part of the map, or all of the map if it was rewritten.
    fn refresh(&mut self) {
        let stamp_of = |open: &Open| open.file.metadata().ok().map(|it| Stamp::of(&it));
        let begin_ns = monotonic_ns();
        let now = self.open.as_ref().and_then(stamp_of);
        if now.is_none_or(|now| now.links == 0) {
            self.search();
        }
        let Some(open) = &mut self.open else { return };
        let now = stamp_of(open).unwrap_or(open.stamp);
        let is_changed = std::mem::replace(&mut open.stamp, now) != now;
        if is_changed && !open.contents.go_on(&open.file) {
            self.begin_anew(now.changed_ns());
        }
        if is_changed || self.is_behind {
            self.read(now.changed_ns());
        }
        self.refreshed_ns = begin_ns;
    }

    /// Opens the map if none is open, or if another file may be at its path.
    fn search(&mut self) {
        let is_early = self.searched.is_some_and(|at| at.elapsed() < SEARCH_PAUSE);
        if is_early || !self.may_open {
            return;
        }
        self.searched = Some(Instant::now());
        let Some((file, stamp)) = self.writer.open_map() else { return };
        if self.open.is_some() {
            self.begin_anew(stamp.changed_ns());
        }
        let contents = Contents::of(&file);
        self.open = Some(Open { file, stamp, contents, first_size: stamp.size });
        self.is_behind = true;
    }

    /// Records that the map was rewritten at this time.
    fn begin_anew(&mut self, changed_ns: u64) {
        self.forget_earlier();
        self.earlier = Some((changed_ns, std::mem::take(&mut self.map)));
        if let Some(open) = &mut self.open {
            open.first_size = open.stamp.size;
        }
    }

    fn forget_earlier(&mut self) {
        if let Some((_, earlier)) = self.earlier.take() {
            self.share.give(earlier.taken());
        }
    }

    /// Reads the next part of the map, which was last changed at this time.
    fn read(&mut self, changed_ns: u64) {
        let Some(open) = &self.open else { return };
        let seconds = self.granted.elapsed().as_secs_f64();
        self.granted = Instant::now();
        let regained = (seconds * READ_BYTES as f64) as u64;
        self.allowance = self.allowance.saturating_add(regained).min(READ_BYTES);
        let mut added = AddedLines {
            // Of lines that were there at first, only the last one for an address is known.
            begin: open.first_size,
            at: Added { from_ns: self.refreshed_ns, until_ns: changed_ns },
            replaced: &mut self.replaced,
        };
        let read = self.map.read(&open.file, self.allowance, &mut self.share, &mut added);
        self.is_behind = read >= self.allowance;
        self.allowance = self.allowance.saturating_sub(read);
    }
}

/// Now, on the clock of samples.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// Lock of the perf map of this process, of which there is only one.
    static ONE: Mutex<()> = Mutex::new(());

    struct Written(PathBuf);

    impl Written {
        fn write(&self, lines: &[(u64, &str)]) {
            let lines = lines.iter().map(|(start, name)| format!("{start:x} 100 {name}\n"));
            fs::write(&self.0, lines.collect::<String>()).unwrap();
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn exited_code_keeps_sampled_names_and_frees_the_others() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let map = Written(format!("/tmp/perf-{}.map", std::process::id()).into());
        let lines: Vec<(u64, String)> =
            (1..5000).map(|at| (at << 12, format!("function_{at}"))).collect();
        map.write(&lines.iter().map(|(at, name)| (*at, name.as_str())).collect::<Vec<_>>());
        let budget = Arc::default();
        let code =
            GeneratedCode::within(Holder::of_unknown_user(std::process::id()), true, &budget);
        let naming = code.naming(0x3010, monotonic_ns());
        assert!(budget.used() > 5000 * 10);
        code.end();
        assert!((1..100).contains(&budget.used()) && !code.may_open());
        let name = |address| code.name(address, naming).map(|it| it.to_string());
        assert_eq!((name(0x3010), name(0x4010)), (Some("function_3".into()), None));
        drop(code);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn each_sample_has_the_name_at_its_time() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let map = Written(format!("/tmp/perf-{}.map", std::process::id()).into());
        map.write(&[(0x1000, "old"), (0x3000, "stays")]);
        let code = GeneratedCode::of(std::process::id(), true);
        let before = monotonic_ns();
        let name = |address, naming| code.name(address, naming).map(|it| it.to_string());
        let old = code.naming(0x1010, before);
        assert_eq!((name(0x1010, old), name(0x2010, 0)), (Some("old".into()), None));
        // The clock of files is coarse, so the first sample must be a little older.
        std::thread::sleep(Duration::from_millis(20));
        map.write(&[(0x2000, "new"), (0x1000, "compiled again"), (0x3000, "stays")]);
        let new = code.naming(0x1010, monotonic_ns());
        assert_eq!(name(0x1010, new), Some("compiled again".into()));
        assert_eq!(name(0x1010, old), Some("old".into()));
        // A late sample: of an address that was not sampled before, and of one that was.
        assert_eq!(code.naming(0x1010, before), old);
        assert_eq!(name(0x1020, code.naming(0x1020, before)), Some("old".into()));
        assert_eq!(name(0x2010, code.naming(0x2010, monotonic_ns())), Some("new".into()));
        assert_eq!(code.naming(0x3010, monotonic_ns()), code.naming(0x3010, before));
        // Another file at the path, as editors replace files.
        std::thread::sleep(SEARCH_PAUSE);
        fs::remove_file(&map.0).unwrap();
        map.write(&[(0x1000, "third")]);
        let third = code.naming(0x1010, monotonic_ns());
        assert_eq!(name(0x1010, third), Some("third".into()));
        assert_eq!([old, new].map(|it| name(0x1010, it).unwrap()), ["old", "compiled again"]);
    }
}
