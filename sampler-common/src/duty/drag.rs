//! How much traps slow a program's own code, learned in the program itself.
//!
//! A trap pushes the program's state out of caches, predictors and store buffers, so that its own code runs slower behind it; the clock ticks in that
//! code, and counts progress that is none. How much depends on the code: some 5 ns a trap for one, a hundred for a loop that lives from
//! forwarded stores.
//!
//! # Derivation
//!
//! Windows are of two kinds, by chance: in the one the functions that allocate are probed, in the other those that free as well. With g the program's own time
//! for each allocation, m and d what a trap in a function that allocates and in one that frees adds to it, and f frees for each allocation, the clock shows
//! for each allocation
//!
//! ```text
//! r₁ = g + m          r₂ = g + m + f·d          d = (r₂ − r₁)/f
//! ```
//!
//! as ratios of sums over windows of either kind. Where a window has A allocations and F frees in t nanoseconds of its clock, t/(t − mA − dF) times as much
//! was allocated in the same progress unprobed: window by window, with what is known by then, and later by what that was off ([`super::Bend`]). So d is learned in
//! the target, with the error of a delete-one jackknife over groups (M. H. Quenouille, Biometrika 43, 1956); m is not, but it has to do with d.
//!
//! What is known before d was seen is [`Usual`], the law of m on the machine; one program in twelve is taken to be unlike the others, so that it gets a wide interval and not a wrong
//! one. Above the median s is larger where traps are few, and d then follows m by its root. d is mostly less than m, since the second trap finds the caches empty already, and follows it closely:
//!
//! ```text
//! 92 %:  ln m ~ N(ln u, s²)          8 %:  ln m ~ N(ln u, 0.9²)          d | m ~ N(0.62·m, 8²)
//! ```
//!
//! Once d was seen, all m are as likely as they were times the likelihood of that d (the posterior, summed over a grid of ln m). Its law is
//! Student's of three degrees of freedom: there are programs far from the others (gawk), and in a program that changes the few windows in which frees are probed
//! may have met other phases than the rest, which the jackknife knows in part only. As a scale mixture of normal laws: given that it is z standard deviations off, the
//! variance of d given m is (3 + z²)/2 times what it would be (K. L. Lange, R. J. A. Little, J. M. G. Taylor, "Robust statistical modeling
//! using the t distribution", Journal of the American Statistical Association 84, 1989: the scale is Γ-distributed, with this mean of its inverse).
//!
//! The numbers are from programs that did the same work by turns without probes, with probes where they allocate, and with those where they free as well, ticks in their
//! own code counted for each allocation (docs/statistics.md has them all; as many frees as allocations, or nearly): fourteen on one machine (m 4 to 37, d 7
//! to 33, and 77 in gawk), six on another (m 20 to 122, d 8 to 117).
//!
//! Where a marker is known ([`super::Marks`]) it tells m itself: all m are as likely as they were by then times the likelihood of what it has counted.
//!
//! A sampled allocation counts as some more, since it adds as much as ten others ([`Usual::TRAPS_OF_SAMPLE`]). And a loop that does little between traps has little to
//! lose: where a window has little time for each trap they add only a part of all that ([`Usual::part`]), and some much less. So no window is corrected for more than some
//! part of its time, however dense its phase is.

use super::marks::{LEAST_GROUPS, Teller, Told, jackknife};
use super::{Pace, Usual};

/// Programs that are unlike the others: their part, and the standard deviation of the logarithm.
const UNLIKE: (f64, f64) = (0.08, 0.9);
/// How much farther from what is usual loops may be that do nothing else, downwards and upwards, in standard deviations of the logarithm: of nine, by
/// [`Usual::part`], the five below are 0.1 to 1.2 off, the four above 0 to 0.6.
const DENSE: [f64; 2] = [0.75, 0.3];
/// With that power of the part that traps add there the error of d goes, as nanoseconds of the loop's own time.
const DENSE_FREEING: f64 = 0.25;
/// d of m: the mean of one by the other, and the standard deviation, nanoseconds.
pub(super) const FREEING: (f64, f64) = (0.62, 8.0);
/// Where traps are that sparse, or sparser, d follows m with its root: it was 142 ns of python3's, where 66 are usual, and m 350 where 106 are.
const SPARSE_FREEING: f64 = 0.7;
/// Degrees of freedom of what was seen of d.
const FREEDOM: f64 = 3.0;
/// An interval of 95 %, and as many standard errors of a normal law: laws here are skewed, so that what lies far out would widen every
/// interval if variances were told, and so that the shortest one goes farther up than down.
const USUALLY: (f64, f64) = (0.95, 1.96);
/// Points of the grid of ln m to either side of the median, and their distance.
const POINTS: i32 = 36;
const STEP: f64 = 0.07;

/// What a trap adds to the program's own time, nanoseconds: in functions that allocate, and in those that free.
#[derive(Clone, Debug, PartialEq)]
pub struct Drag {
    /// As far as is known: means.
    pub ns: [f64; 2],
    /// The law of both.
    points: Vec<Point>,
}

/// One of the values that m may have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    /// How likely it is.
    weight: f64,
    /// m, and the mean of d given that.
    ns: [f64; 2],
    /// Variance of d given m.
    variance: f64,
}

impl Point {
    /// As it is before anything was seen, in a program that goes so fast; the weight not scaled.
    fn before(usual: &Usual, pace: &Pace, at: i32) -> Point {
        let (part, sparse) = (pace.part(), pace.sparse());
        let off = f64::from(at) * STEP;
        let density = |spread: f64| (-0.5 * (off / spread).powi(2)).exp() / spread;
        let unlike = density(usual.spread.max(UNLIKE.1));
        // Of dense loops all that were found are in that law, which has a spread to either side, and one height. So has that of sparse traps, but for what they add less.
        let more = match off >= 0.0 {
            true => sparse.hypot(DENSE[1] * (1.0 - part)),
            false => DENSE[0] * (1.0 - part),
        };
        let spread = usual.spread_of_loops(part, usual.spread.hypot(more));
        let dense = (-0.5 * (off / spread).powi(2)).exp() / usual.spread;
        let unlikely = part * UNLIKE.0;
        let weight = (1.0 - unlikely) * dense + unlikely * unlike;
        let m = usual.median_ns * off.exp();
        // In dense loops d is 5 to 8 ns of their own time, whatever m is: so much of it is another part of m, and 4 ns off where 8 are usual.
        let error = FREEING.1 * part.powf(DENSE_FREEING - 1.0);
        // Of what is more than usual of m, since traps are sparse, d has the root as well as is known.
        let known = (sparse / SPARSE_FREEING).min(1.0).powi(2);
        let times = (m / usual.median_ns).max(1.0);
        let d = FREEING.0 * m * times.powf(-known / 2.0);
        let error = error.hypot(known * FREEING.0 * usual.median_ns * (sparse.exp() - 1.0));
        Point { weight, ns: [m, d], variance: error.powi(2) }
    }

    /// After d was seen to be so much, with that variance.
    fn after(self, freeing_ns: f64, variance: f64) -> Point {
        let of_seen = self.variance + variance;
        let off = freeing_ns - self.ns[1];
        let squared = off * off / of_seen;
        let likelihood = (1.0 + squared / FREEDOM).powf(-(FREEDOM + 1.0) / 2.0) / of_seen.sqrt();
        let wider = (FREEDOM + squared) / (FREEDOM - 1.0);
        // Of what d is off, the part that is d's and not the error of seeing it: both are wider alike.
        let own = self.variance / of_seen;
        Point {
            weight: self.weight * likelihood,
            ns: [self.ns[0], (self.ns[1] + own * off).max(0.0)],
            variance: self.variance * (1.0 - own) * wider,
        }
    }
}

impl Drag {
    fn of(mut points: Vec<Point>) -> Drag {
        let all: f64 = points.iter().map(|point| point.weight).sum();
        points.iter_mut().for_each(|point| point.weight /= all);
        let ns = [0, 1].map(|of| points.iter().map(|point| point.weight * point.ns[of]).sum());
        Drag { ns, points }
    }

    fn before(usual: &Usual, pace: &Pace) -> impl Iterator<Item = Point> {
        (-POINTS..=POINTS).map(move |at| Point::before(usual, pace, at))
    }

    /// Of a program, by groups of its windows, and by what has told it in them.
    pub(super) fn learned(usual: &Usual, groups: &[Pace], tellers: &[Teller]) -> Drag {
        let mut all = Pace::default();
        groups.iter().for_each(|group| all.add(group));
        // Where one group has all windows in which frees were probed, nobody knows how these differ.
        let left: Option<Vec<f64>> =
            groups.iter().map(|group| all.without(group).solved()).collect();
        // Nowhere do traps add more than all of the time, nor nearly as much: a program that has lost all that the processor knew of it is some twice as slow.
        let bounds = groups.iter().map(Pace::most_ns);
        let most_ns = bounds.fold(f64::INFINITY, f64::min);
        // One is left, however little time there is for each.
        let most_ns = most_ns.max(Point::before(usual, &all, -POINTS).ns[0]);
        let before = Drag::before(usual, &all).filter(|point| point.ns[0] <= most_ns);
        let mut points: Vec<Point> =
            match (all.solved(), left.filter(|left| left.len() >= LEAST_GROUPS)) {
                (Some(ns), Some(left)) => Drag::seen(before, ns, jackknife(&left)),
                _ => before.collect(),
            };
        if let Some(told) = Told::by(usual, tellers) {
            points.iter_mut().for_each(|point| point.weight *= told.likelihood(point.ns));
        }
        Drag::of(points)
    }

    fn seen(before: impl Iterator<Item = Point>, freeing_ns: f64, variance: f64) -> Vec<Point> {
        before.map(|point| point.after(freeing_ns, variance)).collect()
    }

    /// The mean of a function over the law of m.
    fn mean(&self, of: impl Fn(&Point) -> f64) -> f64 {
        self.points.iter().map(|point| point.weight * of(point)).sum()
    }

    /// Standard errors of both.
    pub fn errors(&self) -> [f64; 2] {
        let off = |point: &Point, of: usize| (point.ns[of] - self.ns[of]).powi(2);
        let variance =
            [self.mean(|point| off(point, 0)), self.mean(|point| off(point, 1) + point.variance)];
        variance.map(f64::sqrt)
    }

    /// Relative standard errors of sums that were corrected, downwards and upwards: `total` is the sum as a function of m and d. Where m is large much more is lost than is gained
    /// where it is small, and nobody loses less than nothing.
    pub fn errors_of(&self, total: impl Fn([f64; 2]) -> f64) -> [f64; 2] {
        let value = total(self.ns);
        if value <= 0.0 {
            return [0.0; 2];
        }
        // What d does where m is known: over its error to both sides.
        let error = self.mean(|point| point.variance).sqrt();
        let [m, d] = self.ns;
        let less = error.min(d);
        let slope = match error + less {
            0.0 => 0.0,
            width => (total([m, d + error]) - total([m, d - less])) / (value * width),
        };
        let off = |point: &Point| (total(point.ns) / value - 1.0, point.weight);
        let ends = shortest(self.points.iter().map(off).collect(), USUALLY.0);
        ends.map(|end| (end / USUALLY.1).hypot(slope * error))
    }
}

/// How far the shortest interval that has that part of the weight of all goes below 0, and above.
fn shortest(mut of: Vec<(f64, f64)>, part: f64) -> [f64; 2] {
    of.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (mut first, mut sum, mut ends) = (0, 0.0, None::<[f64; 2]>);
    for (last, weight) in &of {
        sum += weight;
        while let Some((_, weight)) = of.get(first).filter(|(_, weight)| sum - weight >= part) {
            // The shortest that ends here begins with a later one.
            sum -= weight;
            first += 1;
        }
        let Some((least, _)) = of.get(first).filter(|_| sum >= part) else { continue };
        if ends.is_none_or(|[from, to]| last - least < to - from) {
            ends = Some([*least, *last]);
        }
    }
    let [least, last] = ends.unwrap_or_default();
    [(-least).max(0.0), last.max(0.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where 29 ns are usual.
    fn usual() -> Usual {
        Usual { median_ns: 29.0, spread: 0.35, power: 1.5, floor_ns: 0.0 }
    }

    /// Groups of a program of `g` ns per allocation, in which traps add m and d, with noise of the clock.
    fn groups(g: f64, [m, d]: [f64; 2], n: usize) -> Vec<Pace> {
        let noise = |at: usize| 1.0 + 0.1 * (((at * 7919) % 17) as f64 / 8.0 - 1.0);
        let window = |at: usize| {
            let with_free = at % 2 == 1;
            let each = g + m + if with_free { d } else { 0.0 };
            let clock = 1000.0 * each * noise(at);
            Pace::exact(clock, 1000.0, with_free.then_some(1000.0), 0.0, &usual())
        };
        (0..n).map(window).collect()
    }

    fn alone(clock_ns: f64, allocations: f64) -> Vec<Pace> {
        vec![Pace::exact(clock_ns, allocations, None, 0.0, &usual()); 9]
    }

    /// Factor of all groups together, and its error.
    fn corrected(drag: &Drag, groups: &[Pace]) -> (f64, f64) {
        let total = |of| groups.iter().map(|group| group.factor(of)).sum::<f64>();
        let [below, above] = drag.errors_of(total);
        (total(drag.ns) / groups.len() as f64, (below + above) / 2.0)
    }

    #[test]
    fn the_shortest_interval_is_taken() {
        // 1, 2, 4 … 512 with equal weights: 90 % are in the first nine.
        let of = (0..10).map(|power| (f64::from(1 << power) - 3.0, 0.1)).collect();
        assert_eq!(shortest(of, 0.899), [2.0, 253.0]);
        assert_eq!(shortest(vec![(0.5, 1.0)], 0.95), [0.0, 0.5]);
        assert_eq!(shortest(Vec::new(), 0.95), [0.0; 2]);
        let skewed = Drag::learned(&usual(), &[], &[]);
        let [below, above] = skewed.errors_of(|[m, _]| 1.0 / (1.0 - m / 200.0));
        assert!(below > 0.0 && above > 1.2 * below, "{below} {above}");
        // What no trap adds is the least.
        assert!(1.96 * below < 1.0 - (1.0 - skewed.ns[0] / 200.0), "{below}");
    }

    #[test]
    fn what_a_trap_adds_is_learned() {
        // A heavy machine's, seen where light ones are usual.
        let groups = groups(200.0, [90.0, 56.0], 32);
        let drag = Drag::learned(&usual(), &groups, &[]);
        let (before, errors) = (Drag::learned(&usual(), &[], &[]), drag.errors());
        assert!(
            drag.ns[0] > 1.3 * before.ns[0] && drag.ns[1] > 2.0 * before.ns[1],
            "{:?}",
            drag.ns
        );
        for (of, truth) in [90.0, 56.0].into_iter().enumerate() {
            assert!((drag.ns[of] - truth).abs() < 2.0 * errors[of], "{:?} {errors:?}", drag.ns);
        }
        let (value, error) = corrected(&drag, &groups);
        let truth = groups.iter().map(|group| group.factor([90.0, 56.0])).sum::<f64>() / 32.0;
        assert!((value / truth - 1.0).abs() < 2.0 * error, "{value} {truth} {error}");
        assert!((0.05..0.25).contains(&error), "{error}");
    }

    #[test]
    fn a_second_trap_may_cost_less_than_the_first() {
        // As python3's: 35 ns in malloc, 11 in the free behind it.
        let groups = groups(100.0, [35.0, 11.0], 32);
        let drag = Drag::learned(&usual(), &groups, &[]);
        let (value, error) = corrected(&drag, &groups);
        let truth = groups.iter().map(|group| group.factor([35.0, 11.0])).sum::<f64>() / 32.0;
        assert!((value / truth - 1.0).abs() < 1.5 * error, "{value} {truth} {error}");
        assert!((0.05..0.16).contains(&error), "{error}");
    }

    #[test]
    fn a_loop_of_nothing_but_traps_has_little_to_lose() {
        let groups = alone(30_000.0, 1000.0);
        let drag = Drag::learned(&usual(), &groups, &[]);
        let (value, error) = corrected(&drag, &groups);
        // Of 95.7 ns that are enough there are 30.
        let part = usual().part(30.0) * drag.ns[0] / 30.0;
        assert!((value - 1.0 / (1.0 - part)).abs() < 1e-9, "{value} {part}");
        assert!((0.1..0.25).contains(&part) && error > 0.05, "{part} {error}");
        let ends = drag.errors_of(|of| groups.iter().map(|group| group.factor(of)).sum());
        // From nothing to what lists of strings lose, a third.
        let [low, high] = [value * (1.0 - 1.96 * ends[0]), value * (1.0 + 1.96 * ends[1])];
        assert!(low < 1.05 && (1.35..1.6).contains(&high), "{value} {ends:?}");
    }

    #[test]
    fn rare_traps_need_no_learning() {
        let groups = alone(1e6, 100.0);
        let (value, error) = corrected(&Drag::learned(&usual(), &groups, &[]), &groups);
        // Each may add as much as lone ones do, 203 ns of 10 µs.
        assert!(
            (1.004..1.012).contains(&value) && (0.004..0.01).contains(&error),
            "{value} {error}"
        );
    }

    #[test]
    fn one_kind_of_windows_says_what_is_possible_and_no_more() {
        let before = Drag::learned(&usual(), &[], &[]);
        let usually = Drag::learned(&usual(), &alone(144_000.0, 1_000.0), &[]);
        assert!((usually.ns[0] - before.ns[0]).abs() < 1.5, "{:?}", usually.ns);
        // Where each has a microsecond it may be twice as much, or more.
        let sparse = Drag::learned(&usual(), &alone(1e6, 1_000.0), &[]);
        assert!(sparse.ns[0] > 1.4 * before.ns[0] && sparse.errors()[0] > 2.0 * before.errors()[0]);
        // The mean of lognormal laws: 0.92·29·exp(0.35²/2) + 0.08·29·exp(0.9²/2).
        assert!((before.ns[0] - 31.84).abs() < 0.1, "{:?}", before.ns);
        // They cannot have added 75 ns to what took that long.
        let tight = Drag::learned(&usual(), &alone(80_000.0, 1_000.0), &[]);
        assert!(tight.ns[0] < before.ns[0] && tight.errors()[0] < before.errors()[0]);
    }

    #[test]
    fn one_group_says_nothing_of_how_groups_differ() {
        // Eight windows, frees in one of them, which was slow by chance.
        let window = |at: usize| {
            let (clock, frees) =
                if at == 3 { (380_000.0, Some(1000.0)) } else { (230_000.0, None) };
            Pace::exact(clock, 1000.0, frees, 0.0, &usual())
        };
        let groups: Vec<Pace> = (0..8).map(window).collect();
        let alone = alone(230_000.0, 1_000.0);
        let [drag, before] = [groups, alone].map(|of| Drag::learned(&usual(), &of, &[]));
        assert!((drag.ns[0] - before.ns[0]).abs() < 1.0, "{:?} {:?}", drag.ns, before.ns);
    }

    #[test]
    fn what_was_seen_exactly_is_taken() {
        let drag = Drag::of(Drag::seen(Drag::before(&usual(), &Pace::default()), 40.0, 0.0));
        assert!((drag.ns[1] - 40.0).abs() < 1e-9 && drag.errors()[1] < 1e-6, "{:?}", drag.ns);
        assert!((35.0..60.0).contains(&drag.ns[0]), "{:?}", drag.ns);
    }

    #[test]
    fn a_program_unlike_the_others_has_a_wide_interval() {
        // A loop that lives from forwarded stores, seen to within 5 ns: 90 lies within two errors, and these are wider than of a usual one.
        let seen = |ns| Drag::of(Drag::seen(Drag::before(&usual(), &Pace::default()), ns, 25.0));
        let (far, near) = (seen(90.0), seen(18.0));
        assert!(
            (far.ns[0] - 90.0).abs() < 2.0 * far.errors()[0],
            "{:?} {:?}",
            far.ns,
            far.errors()
        );
        assert!(far.errors()[0] > 2.0 * near.errors()[0], "{:?} {:?}", far.errors(), near.errors());
        assert!((far.ns[1] - 90.0).abs() < 20.0, "{:?}", far.ns);
    }

    #[test]
    fn what_few_windows_say_is_not_all_that_is_known() {
        let drag =
            Drag::of(Drag::seen(Drag::before(&usual(), &Pace::default()), 217.0, 50.0 * 50.0));
        assert!(drag.ns[0] < 90.0 && drag.errors()[0] > 25.0, "{:?} {:?}", drag.ns, drag.errors());
    }
}
