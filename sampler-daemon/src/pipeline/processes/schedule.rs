//! When a process is inspected, and why: every reason and every period.
//!
//! | what | inspected | then |
//! | --- | --- | --- |
//! | a process in a slot | [`INSPECTION_PERIOD`] after the attach | after twice as long each time, up to [`longest_wait`] |
//! | a new program image in a slot | after [`NEW_IMAGE_WAIT`]; with mapping events after [`INSPECTION_PERIOD`] | after twice as long each time |
//! | a process in a slot that has mapped an allocator, has just been probed, or shares links that have changed | at the next turn | as before |
//! | a process in a slot whose library is new, or whose allocator was not found | after [`NEW_IMAGE_WAIT`] | after twice as long each time |
//! | an expected process (`--follow`) with a new program image | at once | after 1, 2, 4 … ms, up to [`EXPECTED_LAST_WAIT`]; then by the survey |
//! | every new process of the machine or the tree | after [`SURVEY`] | after [`SURVEY`] |
//! | every process of the machine or the tree | after [`ROUND`] | after [`ROUND`]; after [`ROUND`] without events when a process of a tree ends or replaces its program |
//! | a mapped file | at once, as an event reports it (`inspect/inspected_files.rs`) | never again, unless it changes |
//!
//! Arrays have two periods: without and with events of new mappings. With events, inspections are
//! repairs.

use crate::pipeline::config::AttachMode;
use std::time::{Duration, Instant};

/// How often the mappings of a process are inspected for allocators that came by `dlopen`.
pub(super) const INSPECTION_PERIOD: Duration = Duration::from_secs(1);
/// As [`INSPECTION_PERIOD`], with many given processes: an inspection takes about 0.1 ms.
const SHARED_INSPECTION_PERIOD: Duration = Duration::from_secs(5);
/// As [`INSPECTION_PERIOD`], where processes appear by themselves.
const OPEN_INSPECTION_PERIODS: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];
/// Wait after `execve`: the new image's libraries appear within moments.
pub(super) const NEW_IMAGE_WAIT: Duration = Duration::from_millis(2);
/// An image without an allocator after this time has none.
const NO_ALLOCATOR_AFTER: Duration = Duration::from_millis(64);
/// Half of the wait between the first two inspections of an expected process.
const EXPECTED_WAIT: Duration = Duration::from_micros(500);
/// After a longer wait, the survey takes over the inspection of an expected process.
const EXPECTED_LAST_WAIT: Duration = Duration::from_millis(250);
/// How often the survey looks for new processes.
const SURVEY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// How often every process is inspected again.
const ROUND: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];

/// The longest time between two inspections of a process in a slot.
pub(super) fn longest_wait(attach_mode: AttachMode, has_events: bool) -> Duration {
    match attach_mode {
        AttachMode::Pids => INSPECTION_PERIOD,
        AttachMode::PidsSharedLinks => SHARED_INSPECTION_PERIOD,
        AttachMode::AllProcesses | AttachMode::Descendants => {
            OPEN_INSPECTION_PERIODS[usize::from(has_events)]
        }
    }
}

/// When a process is inspected next: ever more rarely.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct InspectionTimer {
    next: Instant,
    /// The wait that ends at `next`.
    wait: Duration,
}

impl InspectionTimer {
    /// The timer of a process in a slot that has just been inspected.
    pub(super) fn sweep() -> InspectionTimer {
        InspectionTimer { next: Instant::now() + INSPECTION_PERIOD, wait: INSPECTION_PERIOD }
    }

    /// The timer of an expected process with a new program image.
    pub(super) fn expected() -> InspectionTimer {
        InspectionTimer { next: Instant::now(), wait: EXPECTED_WAIT }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Inspects at the next turn; the later waits keep their length.
    pub(in crate::pipeline) fn inspect_now(&mut self) {
        self.next = Instant::now();
    }

    /// Inspects after `wait`; the later waits start from `wait`.
    pub(super) fn inspect_after(&mut self, wait: Duration) {
        *self = InspectionTimer { next: Instant::now() + wait, wait };
    }

    /// Starts the waits of a new program image. An earlier inspection that is due stays where it
    /// is.
    pub(super) fn begin_image(&mut self, has_events: bool) {
        let before = self.next;
        self.inspect_after(if has_events { INSPECTION_PERIOD } else { NEW_IMAGE_WAIT });
        self.next = self.next.min(before);
    }

    /// Records an inspection at `now`.
    pub(super) fn inspected(&mut self, now: Instant, longest: Duration) {
        self.wait = (self.wait * 2).min(longest);
        self.next = now + self.wait;
    }

    /// Whether an expected process has been inspected so often that only the survey goes on.
    pub(super) fn is_left_to_survey(&self) -> bool {
        self.wait > EXPECTED_LAST_WAIT
    }

    /// Whether a program image is so old that it does not need what it has not mapped.
    pub(super) fn has_settled(&self) -> bool {
        self.wait >= NO_ALLOCATOR_AFTER
    }
}

/// When the machine or the tree is surveyed.
#[derive(Default)]
pub(in crate::pipeline) struct SurveyTimer {
    began: Option<Instant>,
    next: Option<Instant>,
    next_round: Option<Instant>,
}

impl SurveyTimer {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// Begins a survey. Returns whether it is a round, which inspects every process.
    pub(super) fn begin(&mut self, now: Instant, has_events: bool) -> bool {
        let period = usize::from(has_events);
        self.began = Some(now);
        self.next = Some(now + SURVEY[period]);
        let is_round = self.next_round.is_none_or(|next| next <= now);
        if is_round {
            self.next_round = Some(now + ROUND[period]);
        }
        is_round
    }

    /// Inspects everything again soon, after lost events.
    pub(super) fn repair(&mut self) {
        self.next = self.began.map(|began| began + SURVEY[0]);
        self.next_round = None;
    }

    /// Inspects every process again after the shorter period of a round.
    pub(super) fn look_round_soon(&mut self) {
        let soon = Instant::now() + ROUND[0];
        self.next_round = self.next_round.map(|next| next.min(soon));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_are_due_soon_but_keep_their_distance() {
        let now = Instant::now();
        let mut timer = SurveyTimer::default();
        assert!(timer.is_due(now) && timer.begin(now, true));
        let later = now + SURVEY[1];
        assert!(!timer.is_due(later - SURVEY[0]) && timer.is_due(later));
        assert!(!timer.begin(later, true), "a round is rarer");
        timer.repair();
        assert!(!timer.is_due(later) && timer.is_due(later + SURVEY[0]));
        assert!(timer.begin(later + SURVEY[0], true), "a repair is a round");
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut timer = InspectionTimer::sweep();
        timer.begin_image(false);
        let (now, longest) =
            (Instant::now() + NEW_IMAGE_WAIT, longest_wait(AttachMode::Pids, false));
        assert!(timer.is_due(now) && !timer.has_settled());
        let mut waits = Vec::new();
        while timer.wait < longest {
            timer.inspected(now, longest);
            waits.push(timer.wait.as_millis());
        }
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 256, 512, 1000]);
        assert!(timer.has_settled() && !timer.is_due(now) && timer.is_due(now + longest));
        timer.inspect_now();
        assert!(timer.is_due(Instant::now()) && timer.has_settled());
    }
}
