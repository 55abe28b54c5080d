//! A window, and what is left of it where it begins late.

use super::Timers;
use crate::wire::missed;

/// Fewer ticks of the fine clock are too few to count calls in.
const LEAST_MARKING: u64 = 6;

/// A window to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Ticks of its stratum: L.
    pub length: u64,
    /// Ticks from the beginning of the stratum to where it begins.
    pub offset: u64,
    /// Ticks of the fine clock before it, in which only a marker is probed ([`super::Marks`]); 0: there is none.
    pub marking: u64,
    /// Its own ticks: c.
    pub ticks: u64,
    /// Whether these are of the fine clock.
    pub fine: bool,
    /// Whether functions that free are probed in it as well, see [`super::Drag`].
    pub frees: bool,
    /// Mean bytes between samples in it.
    pub interval_bytes: u64,
    /// Its length, nanoseconds of progress.
    pub length_ns: f64,
    /// The chance that an allocation of the stratum falls into it: κ.
    pub share: f64,
}

impl Window {
    /// Whether something is left of it when so many ticks of its stratum have passed; what has is taken off it.
    pub fn is_left_after(&mut self, passed: i64, timers: Timers) -> bool {
        let unit = timers.unit(false);
        let missed = passed as f64 - self.offset as f64;
        let own = self.length_ns / unit;
        if missed <= 0.0 {
            return true;
        }
        let left = 1.0 - missed / own;
        if left > 0.0 {
            self.ticks = ((self.ticks as f64 * left) as u64).max(1);
            self.length_ns = self.ticks as f64 * timers.unit(self.fine);
        }
        left > 0.0
    }

    /// There are so many ticks until its place: its marker is probed for as many of them as it wants, or not at all if they are few. How many ticks before its place that is to
    /// begin. So where it falls has nothing to do with markers: were it later for them, programs that change would be met in some phases more often than in others.
    pub fn place_marking(&mut self, room: i64, timers: Timers) -> u64 {
        let of_fine = timers.unit(true) / timers.unit(false);
        let most = (room.max(0) as f64 / of_fine) as u64;
        self.marking = if most < LEAST_MARKING { 0 } else { self.marking.min(most) };
        // The window comes up to a tick after its place then, and never before its stratum.
        (self.marking as f64 * of_fine) as u64
    }

    /// Time of the clock in which markers are probed alone, nanoseconds.
    pub fn marking_ns(&self, timers: Timers) -> f64 {
        self.marking as f64 * timers.unit(true)
    }

    /// The same where that began so many ticks after its time: it ends [at its time or not much later](missed), as a window does.
    #[must_use]
    pub fn marking_late_by(self, ticks: u64) -> Window {
        Window { marking: self.marking - missed(self.marking, ticks), ..self }
    }

    /// It began so many ticks after its time, and ended at its time or [not much later](missed): what was in the rest stands for all of it.
    #[must_use]
    pub fn late_by(self, ticks: u64) -> Window {
        let seen = (self.ticks - missed(self.ticks, ticks)).max(1);
        let part = seen as f64 / self.ticks as f64;
        Window { ticks: seen, length_ns: self.length_ns * part, share: self.share * part, ..self }
    }

    /// The process ended when so many ticks of it had yet to come, and half of the one before, as a mean. Its share stays what it was: as much of
    /// every place in the stratum that there was could have been met.
    #[must_use]
    pub fn cut_by(self, left: u64) -> Window {
        if left == 0 {
            return self;
        }
        let seen = self.ticks.saturating_sub(left);
        let part = ((seen as f64 + 0.5) / self.ticks.max(1) as f64).min(1.0);
        Window { ticks: seen.max(1), length_ns: self.length_ns * part, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duty::Budget;

    const TICK: f64 = 2_001_000.0;

    fn timers() -> Timers {
        Timers::new(Budget::parse("1%").unwrap(), 2_000.0, 0.0)
    }

    fn window() -> Window {
        Window {
            length: 1000,
            offset: 400,
            marking: 0,
            ticks: 20,
            fine: false,
            frees: false,
            interval_bytes: 1,
            length_ns: 20.0 * TICK,
            share: 0.02,
        }
    }

    #[test]
    fn a_marker_is_probed_where_there_is_room() {
        // A tick is 20.28 of the fine clock.
        let placed = |room| {
            let mut window = Window { marking: 60, fine: true, ..window() };
            let early = window.place_marking(room, timers());
            (window.marking, early)
        };
        assert_eq!((placed(500), placed(3), placed(2)), ((60, 2), (60, 2), (40, 1)));
        assert_eq!((placed(0), placed(-7)), ((0, 0), (0, 0)));
    }

    #[test]
    fn an_end_cuts_what_was_seen_and_not_what_it_stands_for() {
        let whole = window();
        assert_eq!(whole.cut_by(0), whole);
        let cut = whole.cut_by(15);
        assert_eq!((cut.ticks, cut.share), (5, whole.share));
        assert!((cut.length_ns / whole.length_ns - 5.5 / 20.0).abs() < 1e-12, "{cut:?}");
        let at_once = whole.cut_by(20);
        assert_eq!(at_once.ticks, 1);
        assert!((at_once.length_ns / whole.length_ns - 0.5 / 20.0).abs() < 1e-12, "{at_once:?}");
    }

    #[test]
    fn what_is_left_of_a_window() {
        let passed = |ticks: i64| {
            let mut window = window();
            let is_left = window.is_left_after(window.offset as i64 + ticks, timers());
            (is_left, window)
        };
        assert_eq!(passed(-7), (true, window()));
        assert_eq!(passed(0), (true, window()));
        assert!(!passed(600).0);
        let (is_left, half) = passed(10);
        assert!(is_left && half.ticks == 10 && half.share == 0.02, "{half:?}");
    }

    #[test]
    fn what_a_late_window_saw_stands_for_all_of_it() {
        assert_eq!(window().late_by(0), window());
        let late = window().late_by(5);
        assert_eq!((late.ticks, late.length, late.share), (15, 1000, 0.015));
        assert!((late.length_ns - 15.0 * TICK).abs() < 1e-3);
        assert_eq!(window().late_by(77).ticks, 10);
        assert_eq!(Window { ticks: 1, ..window() }.late_by(77).ticks, 1);
        let marking = |late| Window { marking: 60, ..window() }.marking_late_by(late).marking;
        assert_eq!((marking(0), marking(12), marking(77)), (60, 48, 30));
    }
}
