//! The state of each debug file: here, on its way, missing or failed.

use rustc_hash::FxHashMap;
use sampler_common::units::grouped;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of remembered build ids. At the bound, missing and failed debug files are
/// forgotten. If that frees no room, further build ids are refused.
const MAX_BUILD_IDS: usize = 16 << 10;

/// Maximum number of open debug files. At the bound, the least recently used file is closed. A
/// closed file is read from the cache again when it is needed.
const MAX_OPEN: usize = 256;

/// Time after which a missing debug file is requested again. debuginfod's own clients use the same
/// time.
pub(super) const MISSING_PERIOD: Duration = Duration::from_secs(600);

/// Time after which a failed request is tried again.
pub(super) const FAILED_PERIOD: Duration = Duration::from_secs(60);

/// The state of a debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Nobody has requested the file.
    NotRequested,
    /// The file was requested and has not arrived.
    OnTheWay,
    /// The file is open.
    Here,
    /// No server has the file.
    Missing,
    /// The last request for the file failed, for this reason.
    Failed(String),
}

/// The outcome of a request for a debug file.
#[derive(Debug)]
pub(super) enum Outcome {
    Here(File),
    Missing,
    Failed(String),
}

#[derive(Debug)]
enum State {
    OnTheWay,
    /// The open file, and the time of its last use.
    Here(Arc<File>, Instant),
    Missing(Instant),
    Failed(String, Instant),
}

/// The states of all requested debug files, by build id.
#[derive(Debug, Default)]
pub struct Files(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    states: FxHashMap<String, State>,
    /// Number of failed requests. `last` is the last reason.
    failed: u64,
    last: String,
    /// Number of requests for which there was no room.
    refused: u64,
}

impl Files {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, build_id: &str) -> Option<Arc<File>> {
        match self.known().states.get_mut(build_id)? {
            State::Here(file, used) => {
                *used = Instant::now();
                Some(Arc::clone(file))
            }
            _ => None,
        }
    }

    pub(super) fn state(&self, build_id: &str) -> FileState {
        match self.known().states.get(build_id) {
            None => FileState::NotRequested,
            Some(State::OnTheWay) => FileState::OnTheWay,
            Some(State::Here(..)) => FileState::Here,
            Some(State::Missing(_)) => FileState::Missing,
            Some(State::Failed(reason, _)) => FileState::Failed(reason.clone()),
        }
    }

    /// Whether the file of a build id must be requested now. If so, the file's state becomes
    /// `OnTheWay`.
    pub(super) fn may_ask(&self, build_id: &str) -> bool {
        let mut known = self.known();
        let is_due = match known.states.get(build_id) {
            None => known.has_room(),
            Some(State::OnTheWay | State::Here(..)) => false,
            Some(State::Missing(at)) => at.elapsed() > MISSING_PERIOD,
            Some(State::Failed(_, at)) => at.elapsed() > FAILED_PERIOD,
        };
        if is_due {
            known.states.insert(build_id.to_owned(), State::OnTheWay);
        }
        is_due
    }

    /// Takes back a request for which the queue has no room.
    pub(super) fn refuse(&self, build_id: &str) {
        let mut known = self.known();
        known.states.remove(build_id);
        known.refused += 1;
    }

    pub(super) fn put(&self, build_id: String, outcome: Outcome) {
        let (mut known, now) = (self.known(), Instant::now());
        let state = match outcome {
            Outcome::Here(file) => {
                known.close_oldest();
                State::Here(Arc::new(file), now)
            }
            Outcome::Missing => State::Missing(now),
            Outcome::Failed(reason) => {
                tracing::debug!("debuginfod: {build_id}: {reason}");
                known.failed += 1;
                known.last.clone_from(&reason);
                State::Failed(reason, now)
            }
        };
        known.states.insert(build_id, state);
    }

    pub(super) fn limits(&self) -> Vec<String> {
        let known = self.known();
        let count = |of: fn(&State) -> bool| known.states.values().filter(|it| of(it)).count();
        let on_the_way = count(|state| matches!(state, State::OnTheWay)) as u64;
        let missing = count(|state| matches!(state, State::Missing(_))) as u64;
        let last = &known.last;
        let lines = [
            (on_the_way, "modules still on their way from debuginfod".to_owned()),
            (missing, "modules have no debug information on any debuginfod server".to_owned()),
            (known.failed, format!("questions to debuginfod failed, the last one: {last}")),
            (
                known.refused,
                "questions to debuginfod were put off: too many modules wait".to_owned(),
            ),
        ];
        let lines = lines.into_iter().filter(|(count, _)| *count > 0);
        lines.map(|(count, what)| format!("{} {what}", grouped(count))).collect()
    }
}

impl Known {
    /// Whether there is room for one more build id. If not, the build id is counted as refused.
    fn has_room(&mut self) -> bool {
        if self.states.len() >= MAX_BUILD_IDS {
            let may_go = |state: &State| matches!(state, State::Missing(_) | State::Failed(..));
            self.states.retain(|_, state| !may_go(state));
        }
        let has_room = self.states.len() < MAX_BUILD_IDS;
        self.refused += u64::from(!has_room);
        has_room
    }

    /// Makes room for one more open file.
    fn close_oldest(&mut self) {
        let open = self.states.iter().filter_map(|(build_id, state)| match state {
            State::Here(_, used) => Some((*used, build_id)),
            _ => None,
        });
        let open: Vec<_> = open.collect();
        if open.len() < MAX_OPEN {
            return;
        }
        let oldest = open.into_iter().min().map(|(_, build_id)| build_id.clone());
        if let Some(oldest) = oldest {
            self.states.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        File::open("/dev/null").unwrap()
    }

    #[test]
    fn a_build_id_is_requested_once() {
        let files = Files::default();
        assert_eq!(files.state("aa"), FileState::NotRequested);
        assert!(files.may_ask("aa") && !files.may_ask("aa"));
        assert_eq!(files.state("aa"), FileState::OnTheWay);
        assert_eq!(files.limits(), ["1 modules still on their way from debuginfod"]);
        files.put("aa".to_owned(), Outcome::Here(file()));
        assert!(!files.may_ask("aa") && files.get("aa").is_some());
        assert!(files.limits().is_empty());
        for (build_id, outcome) in
            [("bb", Outcome::Missing), ("cc", Outcome::Failed("refused".to_owned()))]
        {
            assert!(files.may_ask(build_id));
            files.put(build_id.to_owned(), outcome);
            assert!(!files.may_ask(build_id) && files.get(build_id).is_none());
        }
        assert_eq!(files.state("cc"), FileState::Failed("refused".to_owned()));
        assert_eq!(files.limits().len(), 2, "{:?}", files.limits());
    }

    #[test]
    fn the_number_of_open_files_is_bounded() {
        let files = Files::default();
        for number in 0..=MAX_OPEN {
            files.put(format!("{number}"), Outcome::Here(file()));
        }
        assert!(files.get("0").is_none() && files.may_ask("0"), "the oldest is open");
        assert!(files.get("1").is_some());
    }

    #[test]
    fn the_number_of_build_ids_is_bounded() {
        let files = Files::default();
        for number in 0..MAX_BUILD_IDS {
            assert!(files.may_ask(&number.to_string()));
        }
        assert!(!files.may_ask("x"));
        assert!(files.limits()[1].starts_with("1 questions"), "{:?}", files.limits());
        files.put("7".to_owned(), Outcome::Missing);
        assert!(files.may_ask("x"), "what could not be had is not forgotten");
    }
}
