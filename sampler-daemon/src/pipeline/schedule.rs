//! When a process is looked at, and why: every reason and every period.
//!
//! | what | looked at | then |
//! | --- | --- | --- |
//! | a process in a slot | [`INSPECTION_PERIOD`] after it was attached | after twice as long each time, up to [`longest_wait`] |
//! | a new program image in a slot | after [`NEW_IMAGE_WAIT`]; with events of mappings after [`INSPECTION_PERIOD`] | the same |
//! | a process in a slot that has mapped an allocator, has just been probed, or shares links that have changed | at the next turn | as before |
//! | a process in a slot whose library is new, or whose allocator was not found | after [`NEW_IMAGE_WAIT`] | after twice as long each time |
//! | an expected process (`--follow`) with a new program image | at once | after 1, 2, 4 … ms, up to [`EXPECTED_LAST_WAIT`]; then the survey has it |
//! | every process of the machine or the tree that is new | after [`SURVEY`] | the same |
//! | every process of the machine or the tree | after [`ROUND`] | the same; after [`ROUND`] without events when a process of a tree ends or replaces its program |
//! | a mapped file | at once, as an event reports it (`inspect/inspected_files.rs`) | never again, unless it changes |
//!
//! Arrays have a period without events of new mappings, and with them: then looks are repairs.

use super::config::AttachMode;
use std::time::{Duration, Instant};

/// How often the mappings of a process are looked at for allocators that came by `dlopen`.
pub(super) const INSPECTION_PERIOD: Duration = Duration::from_secs(1);
/// The same where there are many given processes: a look takes some 0.1 ms.
const SHARED_INSPECTION_PERIOD: Duration = Duration::from_secs(5);
/// The same where processes come by themselves.
const OPEN_INSPECTION_PERIODS: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];
/// After `execve` the new image's libraries appear within moments.
pub(super) const NEW_IMAGE_WAIT: Duration = Duration::from_millis(2);
/// An image in which no allocator was found for so long has none.
const NO_ALLOCATOR_AFTER: Duration = Duration::from_millis(64);
/// A half of the wait between the first two looks at an expected process.
const EXPECTED_WAIT: Duration = Duration::from_micros(500);
/// After a longer wait the survey goes on looking at an expected process.
const EXPECTED_LAST_WAIT: Duration = Duration::from_millis(250);
/// How often new processes are looked for.
const SURVEY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// How often every process is looked at again.
const ROUND: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];

/// The longest time between two looks at a process in a slot.
pub(super) fn longest_wait(attach_mode: AttachMode, has_events: bool) -> Duration {
    match attach_mode {
        AttachMode::Pids => INSPECTION_PERIOD,
        AttachMode::PidsSharedLinks => SHARED_INSPECTION_PERIOD,
        AttachMode::AllProcesses | AttachMode::Descendants => {
            OPEN_INSPECTION_PERIODS[usize::from(has_events)]
        }
    }
}

/// When a process is looked at next: ever more rarely.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookTimer {
    next: Instant,
    /// The wait that ends at `next`.
    wait: Duration,
}

impl LookTimer {
    /// Of a process in a slot that has just been looked at.
    pub(super) fn sweep() -> LookTimer {
        LookTimer { next: Instant::now() + INSPECTION_PERIOD, wait: INSPECTION_PERIOD }
    }

    /// Of an expected process that has a new program image.
    pub(super) fn expected() -> LookTimer {
        LookTimer { next: Instant::now(), wait: EXPECTED_WAIT }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// The next look is at the next turn; the waits behind it stay as long as they were.
    pub(super) fn look_now(&mut self) {
        self.next = Instant::now();
    }

    /// The next look is after `wait`, and the waits behind it begin with that.
    pub(super) fn look_after(&mut self, wait: Duration) {
        *self = LookTimer { next: Instant::now() + wait, wait };
    }

    /// The process has a new program image; a look that was to come before stays where it is.
    pub(super) fn begin_image(&mut self, has_events: bool) {
        let before = self.next;
        self.look_after(if has_events { INSPECTION_PERIOD } else { NEW_IMAGE_WAIT });
        self.next = self.next.min(before);
    }

    /// The process is being looked at.
    pub(super) fn looked(&mut self, now: Instant, longest: Duration) {
        self.wait = (self.wait * 2).min(longest);
        self.next = now + self.wait;
    }

    /// Whether an expected process has been looked at so often that only the survey goes on looking.
    pub(super) fn is_left_to_survey(&self) -> bool {
        self.wait > EXPECTED_LAST_WAIT
    }

    /// Whether a program image has been there for so long that what it has not mapped it does not need.
    pub(super) fn has_settled(&self) -> bool {
        self.wait >= NO_ALLOCATOR_AFTER
    }
}

/// When the machine or the tree is surveyed.
#[derive(Default)]
pub(super) struct SurveyTimer {
    began: Option<Instant>,
    next: Option<Instant>,
    next_round: Option<Instant>,
}

impl SurveyTimer {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// A survey begins; whether it is a round, that looks at every process.
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

    /// Events were lost: everything is looked at again, soon.
    pub(super) fn repair(&mut self) {
        self.next = self.began.map(|began| began + SURVEY[0]);
        self.next_round = None;
    }

    /// Every process is looked at again before long.
    pub(super) fn look_round_soon(&mut self) {
        let soon = Instant::now() + ROUND[0];
        self.next_round = self.next_round.map(|next| next.min(soon));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_comes_soon_but_not_all_the_time() {
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
        let mut timer = LookTimer::sweep();
        timer.begin_image(false);
        let (now, longest) =
            (Instant::now() + NEW_IMAGE_WAIT, longest_wait(AttachMode::Pids, false));
        assert!(timer.is_due(now) && !timer.has_settled());
        let mut waits = Vec::new();
        while timer.wait < longest {
            timer.looked(now, longest);
            waits.push(timer.wait.as_millis());
        }
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 256, 512, 1000]);
        assert!(timer.has_settled() && !timer.is_due(now) && timer.is_due(now + longest));
        timer.look_now();
        assert!(timer.is_due(Instant::now()) && timer.has_settled());
    }
}
