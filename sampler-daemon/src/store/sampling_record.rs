//! The sampling of a process: the request, what was learned, the designs in force, and the largest
//! intervals so far.

use super::RingPressure;
use super::sampling::Sampling;
use sampler_common::limits::CLASSES;
use sampler_common::pressure::Raised;
use sampler_common::sampling::rate::MAX_INTERVAL_BYTES;
use sampler_common::sampling::{Design, Rate, Strategy, implied_interval};
use std::time::SystemTime;

/// Usual mean bytes between samples of processes that sample by themselves: their default
/// (jemalloc, tcmalloc, OpenTelemetry's design document 00003).
const USUAL_INTERVAL_BYTES: f64 = 524_288.0;

/// A design for every size class.
pub type Designs = [Design; CLASSES];

/// The sampling of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingRecord {
    /// The request.
    pub requested: Sampling,
    /// The interval before back-pressure: the requested interval, or the interval that the
    /// requested samples per second need.
    pub wanted_bytes: u64,
    /// How often back-pressure has doubled the interval.
    pub pressure: u32,
    /// Bernoulli: mean size of the first calls. The value is fixed once it is learned.
    pub learned_bytes: Option<f64>,
    /// Mean bytes between samples in force.
    pub interval_bytes: f64,
    /// The designs in force.
    pub designs: Designs,
    /// The most objects and bytes of each size class that went unseen per unit of hazard, over all
    /// designs that were in force.
    pub unseen: [(f64, f64); CLASSES],
    /// The largest interval that was in force, bytes.
    pub largest_interval_bytes: f64,
    /// All strategies that were requested.
    pub strategies: Vec<Strategy>,
    /// Whether the process samples some allocations by itself. Exact totals do not cover these
    /// allocations.
    pub samples_itself: bool,
    /// Whether our probes take no samples, because they would count the process's own samples a
    /// second time.
    pub is_self_sampled: bool,
    /// Largest mean bytes between samples that the process's own samples imply; 0 while there are
    /// none.
    pub own_interval_bytes: f64,
    /// By how much back-pressure has raised the interval, in addition to `pressure`.
    pub raised: Raised,
    /// Time of the last raise from an unraised interval.
    pub raised_since: Option<SystemTime>,
    /// Whether the kernel side samples more rarely at present than the designs say, because the
    /// ring fills.
    pub is_raised_by_ring: bool,
    /// How often the kernel side has raised an interval for that reason.
    pub ring_raises: u64,
    /// Times and extent of these raises.
    pub ring_pressure: RingPressure,
    /// Mean bytes between samples of our own library in the process, and their maximum so far; 0
    /// without the library.
    pub library_bytes: (f64, f64),
    /// Whether the process has sent more samples of its own than are accepted. The refused samples
    /// leave the amount unknown.
    pub is_flooded: bool,
    /// By how much the library has raised its interval by itself.
    pub library_raised: Raised,
}

impl SamplingRecord {
    /// The record at the attach. The request is in the strategy's domain ([`Sampling::check`]).
    pub fn new(requested: Sampling) -> SamplingRecord {
        let mut record = SamplingRecord {
            requested,
            wanted_bytes: requested.interval_bytes,
            pressure: 0,
            learned_bytes: None,
            interval_bytes: 1.0,
            designs: [Design::NEVER; CLASSES],
            unseen: [(0.0, 0.0); CLASSES],
            largest_interval_bytes: 1.0,
            strategies: Vec::new(),
            samples_itself: false,
            is_self_sampled: false,
            own_interval_bytes: 0.0,
            raised: Raised::default(),
            raised_since: None,
            is_raised_by_ring: false,
            ring_raises: 0,
            ring_pressure: RingPressure::default(),
            library_bytes: (0.0, 0.0),
            is_flooded: false,
            library_raised: Raised::default(),
        };
        record.request(requested);
        record
    }

    /// Sets a new request. What was learned is forgotten, and back-pressure starts anew.
    pub fn request(&mut self, requested: Sampling) {
        self.requested = requested;
        self.wanted_bytes = requested.interval_bytes;
        self.pressure = 0;
        self.raised = Raised::default();
        self.learned_bytes = None;
        if !self.is_self_sampled && !self.strategies.contains(&requested.strategy) {
            self.strategies.push(requested.strategy);
        }
        self.refresh();
    }

    /// The interval in bytes, with back-pressure.
    pub fn interval(&self) -> u64 {
        self.under_pressure(self.wanted_bytes)
    }

    fn under_pressure(&self, interval: u64) -> u64 {
        let factor = f64::from(self.pressure.min(32)).exp2() * self.raised.factor();
        ((interval as f64 * factor).round() as u64).min(MAX_INTERVAL_BYTES)
    }

    /// Notes that the kernel side has applied back-pressure of this level
    /// ([`sampler_common::sampling::ring_pressure`]), which was off until `since_ns`.
    pub fn note_ring_level(&mut self, level: u32, since_ns: u64) {
        let raised = self.designs.map(|design| design.at_ring_level(level));
        let factors =
            self.designs.iter().zip(&raised).map(|(of, by)| by.interval() / of.interval());
        // The factor of a design that samples nothing is NaN, which `max` ignores.
        let factor = factors.fold(1.0, f64::max);
        self.ring_pressure.raise(since_ns, factor);
        self.largest_interval_bytes = self.largest_interval_bytes.max(self.interval_bytes * factor);
        self.note_designs(raised);
    }

    /// Recomputes the designs. [`SamplingRecord::set`] sets designs that are learned per class.
    pub fn refresh(&mut self) {
        let interval = self.interval();
        let design = match (self.requested.strategy, self.requested.one_in, self.learned_bytes) {
            (Strategy::Bernoulli, Some(calls), _) => {
                Rate::from_interval(self.under_pressure(calls))
                    .map(|rate| Design::new(Strategy::Bernoulli, rate))
            }
            // The sizes are not known yet.
            (Strategy::Bernoulli, None, None) => {
                Design::from_interval(Strategy::Geometric, interval, 1.0)
            }
            (strategy, _, learned) => {
                Design::from_interval(strategy, interval, learned.unwrap_or(1.0))
            }
        };
        self.set([design.unwrap_or(Design::NEVER); CLASSES]);
    }

    /// Adds the sampling of another process: the maximum of what can have gone unseen in either.
    pub fn absorb(&mut self, other: &SamplingRecord) {
        self.interval_bytes = self.interval_bytes.max(other.interval_bytes);
        self.largest_interval_bytes = self.largest_interval_bytes.max(other.largest_interval_bytes);
        for (unseen, (objects, bytes)) in self.unseen.iter_mut().zip(other.unseen) {
            *unseen = (unseen.0.max(objects), unseen.1.max(bytes));
        }
        self.samples_itself |= other.samples_itself;
        self.own_interval_bytes = self.own_interval_bytes.max(other.own_interval_bytes);
        self.library_bytes.1 = self.library_bytes.1.max(other.library_bytes.1);
        self.is_flooded |= other.is_flooded;
        for strategy in &other.strategies {
            if !self.strategies.contains(strategy) {
                self.strategies.push(*strategy);
            }
        }
    }

    /// Sets whether our probes take no samples from now on.
    pub fn set_self_sampled(&mut self, is_self_sampled: bool) {
        self.is_self_sampled = is_self_sampled;
        self.refresh();
    }

    /// Makes our probes never take samples. The designs so far have sampled nothing.
    pub fn begin_self_sampled(&mut self) {
        self.strategies.clear();
        self.unseen = [(0.0, 0.0); CLASSES];
        self.largest_interval_bytes = 1.0;
        self.will_take_itself();
        self.set_self_sampled(true);
    }

    /// Notes that the process may sample allocations by itself from now on.
    pub fn will_take_itself(&mut self) {
        self.samples_itself = true;
        if !self.strategies.contains(&Strategy::External) {
            self.strategies.push(Strategy::External);
        }
    }

    /// Notes a sample that the process has taken by itself: `size` bytes that stand for `weighted`.
    pub fn took_itself(&mut self, size: u64, weighted: u64) {
        self.will_take_itself();
        let interval = implied_interval(size, weighted).unwrap_or(1.0);
        self.own_interval_bytes = self.own_interval_bytes.max(interval);
        // Weights are whole numbers, so the weight of an almost certain sample says nothing about
        // the interval. The library's own report is exact, but may be outdated.
        if self.library_bytes.1 > 0.0
            && weighted / 2 >= size
            && interval > self.library_bytes.1 * 1.25
        {
            self.library_bytes.1 = interval;
        }
    }

    /// Whether nothing has arrived from a sampler in the process: neither a sample nor a report of
    /// our own library.
    pub fn has_no_reports(&self) -> bool {
        self.own_interval_bytes <= 0.0 && self.library_bytes.1 <= 0.0
    }

    /// Sets the state of our own library in the process: its interval, its largest interval so far,
    /// and by how much it has raised its interval.
    pub fn set_library(&mut self, (interval_bytes, largest): (f64, f64), raised: Raised) {
        self.library_bytes = (interval_bytes, self.library_bytes.1.max(largest));
        // The library counts anew for another samplerd and for another program.
        let raises = raised.raises.max(self.library_raised.raises);
        self.library_raised = Raised { raises, ..raised };
    }

    /// By how much the interval is raised for a limit of samples: by our own library or by the
    /// daemon, whichever has raised it further. If only the library takes samples, its raise
    /// counts.
    pub fn raised_for_limits(&self) -> Raised {
        let is_librarys = self.strategies == [Strategy::External] && self.library_bytes.1 > 0.0;
        let further =
            self.library_raised.factor() > self.raised.factor() || self.raised.raises == 0;
        if is_librarys || further { self.library_raised } else { self.raised }
    }

    /// Mean bytes between samples to show: of our probes, or of the process's own sampler if our
    /// probes take no samples.
    pub fn shown_interval(&self) -> f64 {
        if self.strategies == [Strategy::External] {
            if self.library_bytes.0 > 0.0 { self.library_bytes.0 } else { self.guessed_interval() }
        } else {
            self.interval_bytes
        }
    }

    /// The largest mean interval that was in force, bytes: of our probes or of the process's own
    /// sampler.
    pub fn largest_interval(&self) -> f64 {
        match self.samples_itself {
            true => self.largest_interval_bytes.max(self.guessed_interval()),
            false => self.largest_interval_bytes,
        }
    }

    /// The most objects and bytes of a size class that went unseen per unit of hazard, by our
    /// sampling and by the process's own. The process's own sampling counts like a geometric
    /// countdown with its interval.
    pub fn passes(&self, class: usize) -> (f64, f64) {
        if self.is_flooded {
            return (f64::INFINITY, f64::INFINITY);
        }
        let (objects, bytes) = self.unseen[class];
        if !self.samples_itself {
            return (objects, bytes);
        }
        let whole = (self.guessed_interval() as u64).clamp(1, MAX_INTERVAL_BYTES);
        let design = Design::from_interval(Strategy::Geometric, whole, 1.0);
        let own = design.unwrap_or(Design::NEVER).unseen(class);
        (objects.max(own.0), bytes.max(own.1))
    }

    /// The process's own interval. Without a report or sample of it, the usual interval.
    fn guessed_interval(&self) -> f64 {
        if self.library_bytes.1 > 0.0 {
            return self.library_bytes.1;
        }
        if self.own_interval_bytes > 0.0 { self.own_interval_bytes } else { USUAL_INTERVAL_BYTES }
    }

    /// Puts other designs into force.
    pub fn set(&mut self, designs: Designs) {
        if self.is_self_sampled {
            self.designs = [Design::NEVER; CLASSES];
            return;
        }
        self.designs = designs;
        self.interval_bytes = self.interval() as f64;
        self.largest_interval_bytes = self.largest_interval_bytes.max(self.interval_bytes);
        self.note_designs(designs);
    }

    /// Notes that these designs were in force.
    fn note_designs(&mut self, designs: Designs) {
        for (class, (unseen, design)) in self.unseen.iter_mut().zip(designs).enumerate() {
            let (objects, bytes) = design.unseen(class);
            *unseen = (unseen.0.max(objects), unseen.1.max(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_sampling_processes_keep_their_own_interval() {
        let mut record = SamplingRecord::new(Sampling::geometric(64));
        let ours = record.passes(3);
        record.took_itself(16, 4104); // 4 KiB between samples
        assert!((record.own_interval_bytes / 4096.0 - 1.0).abs() < 1e-3, "{record:?}");
        assert!(record.passes(3).0 > 50.0 * ours.0);
        assert_eq!(record.strategies, [Strategy::Geometric, Strategy::External]);
        assert_eq!(record.shown_interval(), 64.0);
        // Our sampling stops, whatever is requested meanwhile, and goes on later.
        record.set_self_sampled(true);
        record.request(Sampling::geometric(1));
        assert_eq!(record.designs, [Design::NEVER; CLASSES]);
        record.set_self_sampled(false);
        assert_eq!(record.designs[3].inclusion(1), Some(1.0));
        let mut other = SamplingRecord::new(Sampling::geometric(1));
        other.begin_self_sampled();
        assert_eq!(
            (&other.strategies[..], other.shown_interval()),
            (&[Strategy::External][..], 524_288.0)
        );
        other.took_itself(100, 100);
        assert_eq!(other.shown_interval(), 1.0);
        assert!(
            Sampling { strategy: Strategy::External, ..Sampling::geometric(1) }.check().is_err()
        );
    }

    #[test]
    fn bernoulli_learns_sizes_and_pressure_halves_its_rate() {
        let requested = Sampling { strategy: Strategy::Bernoulli, ..Sampling::geometric(4096) };
        let mut record = SamplingRecord::new(requested);
        assert_eq!(record.designs[3].strategy(), Some(Strategy::Geometric), "until it has learned");
        record.learned_bytes = Some(64.0);
        record.refresh();
        assert!((record.designs[3].inclusion(9).unwrap() - 1.0 / 64.0).abs() < 1e-9);
        record.pressure += 1;
        record.refresh();
        assert!((record.designs[3].inclusion(9).unwrap() - 1.0 / 128.0).abs() < 1e-9);
        assert_eq!((record.interval_bytes, record.largest_interval_bytes), (8192.0, 8192.0));
        record.request(Sampling::geometric(1));
        assert_eq!((record.interval_bytes, record.pressure), (1.0, 0));
        assert_eq!(record.strategies, [Strategy::Bernoulli, Strategy::Geometric]);
        // The designs that were in force before still bound what went unseen.
        assert!(record.unseen[1].0 > 100.0);
    }
}
