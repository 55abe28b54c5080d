//! What the last windows tell of the next.

use super::Waited;

/// How much less a window weighs in what is expected of the next than the one after it.
const FADE: f64 = 0.9;
/// Length of the window that stands for what is usual before any was there, nanoseconds.
const FIRST_LENGTH_NS: f64 = 4e6;
/// Time that hits take, before any were seen: two million a second, at half a microsecond.
const FIRST_SLOWDOWN: f64 = 1.0;
/// Least and most of the variance between windows, over the square of their mean.
const BETWEEN: (f64, f64) = (0.02, 4.0);
/// Variance between windows before any was there, and how much that weighs: as three of a few ticks, or one with ten.
const FIRST_BETWEEN: (f64, f64) = (0.05, 40.0);
/// So many windows have waited for steps before it is known how far apart these are.
const LEAST_WAITED: f64 = 2.5;
/// How much less a window weighs in that than the one after it.
const FADE_BETWEEN: f64 = 0.97;

/// Sums over windows, of which each weighs more than the one before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    length_ns: f64,
    /// Time that hits took.
    hits_ns: f64,
    bytes: f64,
    /// What counting calls of a marker took, and the length of the windows with which it was.
    marking: [f64; 2],
    /// What windows waited for steps at both their ends, pairs of ends that were at steps, and how many waited.
    waited: [f64; 3],
    /// What traps have added to the program's own time, and the length of the windows in which that was known.
    drag: [f64; 2],
}

impl Default for Recent {
    /// What is usual.
    fn default() -> Recent {
        let length_ns = FIRST_LENGTH_NS;
        Recent {
            length_ns,
            hits_ns: FIRST_SLOWDOWN * length_ns,
            bytes: 0.0,
            marking: [0.0; 2],
            waited: [0.0; 3],
            drag: [0.0; 2],
        }
    }
}

impl Recent {
    pub(super) fn add(&mut self, length_ns: f64, hits_ns: f64, bytes: f64) {
        self.length_ns = FADE * self.length_ns + length_ns;
        self.hits_ns = FADE * self.hits_ns + hits_ns;
        self.bytes = FADE * self.bytes + bytes;
    }

    /// Before a window of that length calls of a marker were counted, which took so long.
    pub(super) fn add_marking(&mut self, marking_ns: f64, length_ns: f64) {
        let now = [marking_ns, length_ns];
        self.marking.iter_mut().zip(now).for_each(|(of, now)| *of = FADE * *of + now);
    }

    /// A window has waited for steps, or not: whoever does not is to try it again some time.
    pub(super) fn add_wait(&mut self, waited: Option<&Waited>) {
        let now = waited.map_or([0.0; 3], |of| [of.ns, of.ends / 2.0, 1.0]);
        self.waited.iter_mut().zip(now).for_each(|(of, now)| *of = FADE * *of + now);
    }

    /// It is another word whose steps are waited for.
    pub(super) fn forget_waits(&mut self) {
        self.waited = [0.0; 3];
    }

    /// From a step to the next, nanoseconds of a window's time: as a mean one waits for half of that, if all are as far apart, and longer if not. `None` before it is known.
    pub(super) fn round_ns(&self) -> Option<f64> {
        let [waited_ns, ends, windows] = self.waited;
        (windows > LEAST_WAITED).then(|| waited_ns / ends.max(1e-3))
    }

    /// In a window of that length traps have added so much to the program's own time.
    pub(super) fn add_drag(&mut self, drag_ns: f64, length_ns: f64) {
        let now = [drag_ns, length_ns];
        self.drag.iter_mut().zip(now).for_each(|(of, now)| *of = FADE * *of + now);
    }

    /// What traps add to the program's own time, compared with a window's length.
    pub(super) fn drag(&self) -> f64 {
        let [added_ns, of_ns] = self.drag;
        if of_ns > 0.0 { added_ns / of_ns } else { 0.0 }
    }

    /// Time that hits take in a window, compared with its length.
    pub(super) fn slowdown(&self) -> f64 {
        self.hits_ns / self.length_ns
    }

    /// Bytes allocated in a nanosecond of progress.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes / self.length_ns
    }

    /// Time that counting calls of a marker takes, compared with its window's length; `None`: it never was.
    pub(super) fn marking(&self) -> Option<f64> {
        let [taken_ns, of_ns] = self.marking;
        (of_ns > 0.0).then(|| taken_ns / of_ns)
    }
}

/// The variance of bytes allocated between windows, over the square of their mean, without the chance of ticks: sums over windows, each weighed by how well it is known
/// there. (Were it taken to be no less than nothing in each of them, chance alone would be half of itself, and windows of dense loops as short as may be.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    sum: f64,
    weight: f64,
}

impl Default for Between {
    fn default() -> Between {
        let (usual, weight) = FIRST_BETWEEN;
        Between { sum: usual * weight, weight }
    }
}

impl Between {
    /// A window that is so far off, relatively, of which chance has so much variance.
    pub(super) fn add(&mut self, off: f64, chance: f64) {
        // The variance of a squared distance goes with the square of all.
        let weight = (FIRST_BETWEEN.0 + chance).powi(-2);
        self.sum = FADE_BETWEEN * self.sum + weight * (off * off - chance).min(BETWEEN.1);
        self.weight = FADE_BETWEEN * self.weight + weight;
    }

    pub(super) fn variance(&self) -> f64 {
        (self.sum / self.weight).clamp(BETWEEN.0, BETWEEN.1)
    }
}
