//! The part of the data that a profile covers: a window of time, ages, sizes.

use super::gather::Gathered;
use crate::pipeline::clock::Clocks;
use crate::pipeline::records::ingest::Ingest;
use crate::store::{ProcessId, SizeCell, SizeLimits, Windows, windows::Window};
use sampler_common::estimate::Estimator;
use sampler_common::note::{Loss, Note, Part};
use sampler_common::profile::{self, Kind};
use sampler_common::units::{human_duration, utc};
use std::time::{Duration, UNIX_EPOCH};

/// A requested window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedWindow {
    /// The last so many nanoseconds.
    Last(u64),
    /// Start and end, nanoseconds since the Unix epoch; `None`: from the attach, or until now.
    Between(Option<u64>, Option<u64>),
    /// From the end of an earlier such window, or from the start of the daemon. Its end is the
    /// newest border after which no sample arrives any more.
    After(Option<Border>),
}

/// A border of time slots that stays valid when the wall clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Border {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    monotonic_ns: u64,
}

impl Border {
    /// Time from `other` to this border; 0 if this border is earlier.
    pub fn since(self, other: Border) -> Duration {
        Duration::from_nanos(self.monotonic_ns.saturating_sub(other.monotonic_ns))
    }
}

/// The time between two borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borders {
    /// The start.
    pub start: Border,
    /// The end.
    pub end: Border,
}

impl From<&Window<'_>> for Borders {
    fn from(window: &Window<'_>) -> Borders {
        let border = |monotonic_ns| Border { monotonic_ns };
        Borders { start: border(window.start_ns), end: border(window.end_ns) }
    }
}

/// Longest delay of a sample to the store. Samples are stamped when they are written to the ring,
/// and a request reads all of the ring.
const LATE_NS: u64 = 100_000_000;

impl RequestedWindow {
    /// The time slots of the window.
    pub(super) fn of(self, windows: &Windows, clocks: Clocks) -> Result<Window<'_>, String> {
        let now_ns = clocks.now_ns;
        let (since_ns, until_ns) = match self {
            RequestedWindow::Last(length_ns) => (now_ns.saturating_sub(length_ns), now_ns),
            RequestedWindow::Between(since, until) => (
                since.map_or(0, |since| clocks.at_unix(since)),
                until.map_or(now_ns, |until| clocks.at_unix(until)),
            ),
            RequestedWindow::After(border) => {
                let since_ns = border.map_or(0, |border| border.monotonic_ns);
                return Ok(windows.closed(since_ns, now_ns.saturating_sub(LATE_NS)));
            }
        };
        if since_ns > now_ns {
            let since = utc(clocks.to_unix(since_ns));
            return Err(format!("window from {since} begins in the future"));
        }
        windows.between(since_ns, until_ns, now_ns).map_err(|error| {
            let oldest = utc(clocks.to_unix(error.oldest_ns));
            format!("there are windows since {oldest} (ask from then on, or for everything since attach)")
        })
    }
}

/// The requested part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The time of the allocation; `None`: since the attach.
    pub window: Option<RequestedWindow>,
    /// Least age of a held block, nanoseconds.
    pub min_age_ns: Option<u64>,
    /// Largest age of a held block, nanoseconds.
    pub max_age_ns: Option<u64>,
    /// Requested sizes.
    pub sizes: SizeLimits,
}

impl Scope {
    /// Everything.
    pub const ALL: Scope =
        Scope { window: None, min_age_ns: None, max_age_ns: None, sizes: SizeLimits::ALL };

    /// Whether ages are limited.
    fn has_ages(&self) -> bool {
        self.min_age_ns.is_some() || self.max_age_ns.is_some()
    }

    /// Checks that the scope makes sense for `kind` and `estimator`; otherwise one line.
    pub(super) fn check(&self, kind: Kind, estimator: Estimator) -> Result<(), String> {
        if self.has_ages() && !matches!(kind, Kind::Live | Kind::Mapped) {
            let kind = kind.name();
            return Err(format!(
                "ages are of blocks that are held, not of kind {kind} (use kind live)"
            ));
        }
        if let (Some(min), Some(max)) = (self.min_age_ns, self.max_age_ns)
            && min > max
        {
            let [min, max] = [min, max].map(duration);
            return Err(format!("smallest age {min} is above the largest age {max}"));
        }
        if self.window.is_some() && kind == Kind::Peak {
            return Err("the peak is since attach and has no window (give kind or window)".into());
        }
        if let Some(RequestedWindow::Between(Some(since), Some(until))) = self.window
            && since >= until
        {
            let [since, until] = [since, until].map(utc);
            return Err(format!("window from {since} ends before it begins, at {until}"));
        }
        if estimator == Estimator::Calibrated && !self.sizes.cuts_no_class() {
            let classes = self.sizes.of_classes();
            return Err(format!(
                "estimator calibrated needs exact totals, which are known by size class (give {classes}, or use weighted)"
            ));
        }
        Ok(())
    }

    /// Whether blocks of this age are in scope.
    pub(super) fn has_age(&self, age_ns: u64) -> bool {
        self.min_age_ns.is_none_or(|min| age_ns >= min)
            && self.max_age_ns.is_none_or(|max| age_ns <= max)
    }

    /// Whether requests of this size are in scope.
    pub(super) fn has_size(&self, size: u64) -> bool {
        self.sizes.has(SizeCell::of(size))
    }

    /// The notes on the limits that were applied.
    pub(super) fn notes(&self, kind: Kind) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.window.is_some() && matches!(kind, Kind::Live | Kind::Mapped) {
            notes.push(Note::Part(Part::Window));
        }
        if self.sizes != SizeLimits::ALL {
            let (smallest, largest) = self.sizes.ends();
            notes.push(Note::Part(Part::Sizes(smallest, largest)));
        }
        if self.has_ages() {
            notes.push(Note::Part(Part::Ages(self.min_age_ns, self.max_age_ns)));
        }
        notes
    }
}

fn duration(ns: u64) -> String {
    human_duration(Duration::from_nanos(ns))
}

impl Ingest {
    /// The slots of a window. Everything was observed just before.
    pub(super) fn window(
        &self,
        requested: RequestedWindow,
        clocks: Clocks,
    ) -> Result<Window<'_>, String> {
        requested.of(&self.windows, clocks)
    }

    /// Refuses a window that ends before the attach of every process: it has no data.
    pub(super) fn check_end(
        &self,
        requested: RequestedWindow,
        processes: &[ProcessId],
    ) -> Result<(), String> {
        let RequestedWindow::Between(_, Some(until_ns)) = requested else { return Ok(()) };
        let until = UNIX_EPOCH + Duration::from_nanos(until_ns);
        let attached = processes.iter().map(|id| self.processes.get(*id).attached).min();
        match attached.filter(|attached| until < *attached) {
            None => Ok(()),
            Some(attached) => {
                let attached = attached.duration_since(UNIX_EPOCH).unwrap_or_default();
                let [until, attached] = [until_ns, attached.as_nanos() as u64].map(utc);
                Err(format!(
                    "window until {until} ends before anything was attached to, at {attached} (give a later end)"
                ))
            }
        }
    }

    /// The time range of peaks: from the attach of the processes to their latest peak.
    pub(super) fn peak_window(&self, gathered: &Gathered) -> Option<profile::Window> {
        let attached = |id: &ProcessId| {
            let attached = self.processes.get(*id).attached.duration_since(UNIX_EPOCH);
            attached.map_or(0, |since| since.as_nanos() as u64)
        };
        let peaks = self.live.peaks();
        let each = gathered.processes.iter().filter_map(|id| Some((id, peaks.get(*id)?)));
        let windows = each.map(|(id, peak)| profile::Window {
            start_unix_ns: attached(id),
            end_unix_ns: gathered.clocks.to_unix(peak.time_ns),
        });
        windows.reduce(|a, b| profile::Window {
            start_unix_ns: a.start_unix_ns.min(b.start_unix_ns),
            end_unix_ns: a.end_unix_ns.max(b.end_unix_ns),
        })
    }

    /// The notes on peaks.
    pub(super) fn peak_notes(&self, gathered: &Gathered) -> Vec<Note> {
        let peaks = self.live.peaks();
        let label = |id: &ProcessId| self.processes.get(*id).label();
        let each = || gathered.processes.iter().filter_map(|id| Some((id, peaks.get(*id)?)));
        let times = each().map(|(id, peak)| (label(id), gathered.clocks.to_unix(peak.time_ns)));
        let times: Vec<(String, u64)> = times.collect();
        let forgotten = each().filter(|(_, peak)| peak.forgotten).map(|(id, _)| label(id));
        let forgotten: Vec<String> = forgotten.collect();
        let own = (times.len() > 1).then_some(Note::Part(Part::OwnPeaks(times)));
        let bound = (!forgotten.is_empty()).then_some(Note::Loss(Loss::Peak(forgotten)));
        own.into_iter().chain(bound).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_scopes_are_refused_in_one_line() {
        let ages = Scope { min_age_ns: Some(2), max_age_ns: Some(1), ..Scope::ALL };
        let last = Scope { window: Some(RequestedWindow::Last(1)), ..Scope::ALL };
        let backwards =
            Scope { window: Some(RequestedWindow::Between(Some(2), Some(1))), ..Scope::ALL };
        let sizes = SizeLimits::outward(Some(1000), Some(5000)).unwrap();
        let cut = Scope { sizes, ..Scope::ALL };
        let weighted = Estimator::Weighted;
        for (scope, kind, estimator, words) in [
            (ages, Kind::Alloc, weighted, "use kind live"),
            (ages, Kind::Peak, weighted, "use kind live"),
            (ages, Kind::Live, weighted, "smallest age 0 ms"),
            (last, Kind::Peak, weighted, "has no window"),
            (backwards, Kind::Alloc, weighted, "ends before it begins"),
            (cut, Kind::Alloc, Estimator::Calibrated, "give sizes from 513B to 8KiB, or"),
        ] {
            let error = scope.check(kind, estimator).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        assert_eq!(cut.check(Kind::Alloc, weighted), Ok(()));
        assert_eq!(last.check(Kind::Live, Estimator::Calibrated), Ok(()));
    }

    #[test]
    fn limits_are_noted_as_they_are_applied() {
        let sizes = SizeLimits::outward(None, Some(1000)).unwrap();
        let min_age_ns = Some(90_000_000_000);
        let scope = Scope { sizes, min_age_ns, ..Scope::ALL };
        let limits = [Part::Sizes(None, Some(1007)), Part::Ages(min_age_ns, None)];
        assert_eq!(scope.notes(Kind::Live), limits.map(Note::Part));
        assert!(scope.has_size(1007) && !scope.has_size(1008));
        assert!(scope.has_age(90_000_000_000) && !scope.has_age(89_999_999_999));
        assert_eq!(Scope::ALL.notes(Kind::Live), []);
        let last = Scope { window: Some(RequestedWindow::Last(1)), ..Scope::ALL };
        assert_eq!(last.notes(Kind::Live), [Note::Part(Part::Window)]);
        assert_eq!(last.notes(Kind::Alloc), []);
    }
}
