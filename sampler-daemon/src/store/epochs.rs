//! Exact totals of a process's allocations at each rate: the kernel's totals are divided whenever a
//! rate changes.
//!
//! All rates of a size class within an octave are one epoch, which has the rarest of these rates.
//! (An octave of the objects that go unseen per unit of hazard.) So each class has at most 64
//! epochs, however often back-pressure changes the rate. A process whose rate never changed has no
//! epochs.
//!
//! If it is not known which of two rates was in force at an allocation, the allocation belongs to
//! the rarer rate. Its chance to pass unseen may be overstated, never understated.

use super::{ClassTotals, Designs};
use sampler_common::estimate::{Epoch, Unseen};
use sampler_common::limits::CLASSES;
use std::collections::BTreeMap;

/// For each size class, the most objects and bytes that go unseen per unit of hazard.
pub type Rates = [Unseen; CLASSES];

/// An octave of rates.
pub type Band = u8;

/// The band of rates at which nothing is sampled.
const UNSAMPLED_BAND: Band = 63;
/// The band of one object per unit of hazard. Lower bands are for classes that are nearly always
/// sampled.
const ONE: f64 = 8.0;

/// The octave of `unseen`.
pub fn band(unseen: Unseen) -> Band {
    if unseen.objects == f64::INFINITY {
        return UNSAMPLED_BAND;
    }
    // The logarithm of 0 is −∞, and is clamped to band 0.
    (unseen.objects.log2().ceil() + ONE).clamp(0.0, f64::from(UNSAMPLED_BAND - 1)) as Band
}

/// The objects and bytes that go unseen under `designs`.
pub fn rates(designs: &Designs) -> Rates {
    std::array::from_fn(|class| designs[class].unseen(class).into())
}

/// The epochs of a process, or of several folded processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Epochs {
    /// Totals at the last change. Later allocations were sampled at `open`.
    marked: ClassTotals,
    /// Since the last change: the rarest rates that were in force, and the rates at which samples
    /// of held blocks are kept.
    open: [(Unseen, Unseen); CLASSES],
    closed: BTreeMap<(u8, Band), Epoch>,
}

impl Epochs {
    /// One epoch, since the attach, at `rates`.
    pub fn new(rates: &Rates) -> Epochs {
        Epochs {
            marked: ClassTotals::default(),
            open: rates.map(|of| (of, of)),
            closed: BTreeMap::new(),
        }
    }

    /// Notes that these rates were in force, too, at some time since the last change.
    pub fn note(&mut self, rates: &Rates) {
        for ((alloc, inuse), rate) in self.open.iter_mut().zip(rates) {
            (*alloc, *inuse) = (alloc.max(*rate), inuse.max(*rate));
        }
    }

    /// Notes that the live set was thinned: samples of held blocks were kept as if all allocations
    /// so far had been sampled at `rates`.
    pub fn note_thinned(&mut self, rates: &Rates) {
        for ((_, inuse), rate) in self.open.iter_mut().zip(rates) {
            *inuse = inuse.max(*rate);
        }
        for ((class, _), epoch) in &mut self.closed {
            epoch.inuse = epoch.inuse.max(rates[usize::from(*class)]);
        }
    }

    /// Notes that one in 2^`halvings` of the samples since the last change was admitted to the live
    /// set.
    pub fn note_declined(&mut self, halvings: u32) {
        let factor = f64::from(halvings).exp2();
        for (alloc, inuse) in &mut self.open {
            let Unseen { objects, bytes } = *alloc;
            *inuse = inuse.max(Unseen { objects: objects * factor, bytes: bytes * factor });
        }
    }

    /// The totals that separate earlier allocations from those sampled at `next`. `first` was read
    /// before `next` came into force, `last` afterwards. Allocations between the two readings
    /// belong to the rarer rate.
    pub fn border(&self, first: &ClassTotals, last: &ClassTotals, next: &Rates) -> ClassTotals {
        let mut border = *last;
        for (class, (next, (alloc, _))) in next.iter().zip(&self.open).enumerate() {
            if next.objects > alloc.objects {
                border.bytes[class] = first.bytes[class];
                border.objects[class] = first.objects[class];
            }
        }
        border
    }

    /// Closes the epochs up to `totals`; from then on `next` is in force.
    pub fn close(&mut self, totals: &ClassTotals, next: &Rates) {
        for class in 0..CLASSES {
            let (bytes, objects) = self.since_mark(class, totals);
            let (alloc, inuse) = self.open[class];
            if (bytes, objects) != (0, 0) {
                let epoch = Epoch { bytes, objects, alloc, inuse };
                self.add((class as u8, band(alloc)), &epoch);
            }
            self.marked.bytes[class] = self.marked.bytes[class].max(totals.bytes[class]);
            self.marked.objects[class] = self.marked.objects[class].max(totals.objects[class]);
        }
        self.open = next.map(|of| (of, of));
    }

    /// Closes the epochs for good: no more allocations come.
    pub fn finish(&mut self, totals: &ClassTotals) {
        self.close(totals, &[Unseen::default(); CLASSES]);
    }

    /// Adds the epochs of another process. Both must be finished.
    pub fn absorb(&mut self, other: &Epochs) {
        self.marked.add(&other.marked);
        other.closed.iter().for_each(|(key, epoch)| self.add(*key, epoch));
    }

    fn add(&mut self, key: (u8, Band), epoch: &Epoch) {
        let sum = self.closed.entry(key).or_default();
        sum.bytes += epoch.bytes;
        sum.objects += epoch.objects;
        sum.alloc = sum.alloc.max(epoch.alloc);
        sum.inuse = sum.inuse.max(epoch.inuse);
    }

    fn since_mark(&self, class: usize, totals: &ClassTotals) -> (u64, u64) {
        let since = |now: u64, marked: u64| now.saturating_sub(marked);
        let bytes = since(totals.bytes[class], self.marked.bytes[class]);
        (bytes, since(totals.objects[class], self.marked.objects[class]))
    }

    /// The bands of present allocations.
    pub fn bands(&self) -> [Band; CLASSES] {
        self.open.map(|(alloc, _)| band(alloc))
    }

    /// The epochs of a class, where `totals` are the totals so far.
    pub fn of_class(&self, class: usize, totals: &ClassTotals) -> Vec<Epoch> {
        let mut all = self.clone_class(class);
        let (bytes, objects) = self.since_mark(class, totals);
        let (alloc, inuse) = self.open[class];
        all.add((class as u8, band(alloc)), &Epoch { bytes, objects, alloc, inuse });
        all.closed.into_values().filter(|of| (of.bytes, of.objects) != (0, 0)).collect()
    }

    fn clone_class(&self, class: usize) -> Epochs {
        let range = (class as u8, 0)..=(class as u8, Band::MAX);
        let closed = self.closed.range(range).map(|(key, epoch)| (*key, *epoch)).collect();
        Epochs { marked: ClassTotals::default(), open: self.open, closed }
    }

    /// An epoch of a class in a window with these bytes and objects of a band.
    ///
    /// The rates of an open band may have become rarer before the band was closed. The allocations
    /// then lie in a later band. The next later band stands for the missing band, with the live set
    /// rates of all later bands.
    pub fn in_window(&self, class: usize, band: Band, (bytes, objects): (u64, u64)) -> Epoch {
        let open = self.open[class];
        let later = self.closed.range((class as u8, band)..=(class as u8, Band::MAX));
        let mut later: Vec<(Band, (Unseen, Unseen))> =
            later.map(|((_, of), epoch)| (*of, (epoch.alloc, epoch.inuse))).collect();
        if self::band(open.0) >= band {
            later.push((self::band(open.0), open));
        }
        let first = later.iter().map(|(of, _)| *of).min();
        let is_alone = first == Some(band);
        let mut epoch = Epoch { bytes, objects, ..Epoch::default() };
        for (of, (alloc, inuse)) in later {
            if Some(of) == first {
                epoch.alloc = epoch.alloc.max(alloc);
            }
            if !is_alone || of == band {
                epoch.inuse = epoch.inuse.max(inuse);
            }
        }
        epoch
    }
}

#[cfg(test)]
mod tests;
