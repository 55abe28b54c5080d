//! What a process allocated at each rate, exactly: the kernel's totals are divided whenever a rate changes.
//!
//! Rates of a size class within an octave (of the objects that go unseen per unit of hazard) are one epoch, with the rarest of them: so there are
//! at most 64 for each class, however often back-pressure turns. A process whose rate never changed has none of this.
//!
//! What is counted while it is not known which of two rates was in force belongs to the rarer one: it may be said to have had a better chance
//! to pass unseen than it had, never a worse one.

use super::{ClassTotals, Designs};
use sampler_common::estimate::{Epoch, Unseen};
use sampler_common::limits::CLASSES;
use std::collections::BTreeMap;

/// The most objects and bytes of each size class that go unseen per unit of hazard.
pub type Rates = [Unseen; CLASSES];

/// An octave of rates.
pub type Band = u8;

/// The band of rates at which nothing is sampled.
const UNSAMPLED_BAND: Band = 63;
/// The band of one object per unit of hazard; the first are for classes that are nearly always sampled.
const ONE: f64 = 8.0;

/// The octave of `unseen`.
pub fn band(unseen: Unseen) -> Band {
    if unseen.objects == f64::INFINITY {
        return UNSAMPLED_BAND;
    }
    // Of nothing it is −∞, and ends at 0.
    (unseen.objects.log2().ceil() + ONE).clamp(0.0, f64::from(UNSAMPLED_BAND - 1)) as Band
}

/// What goes unseen under `designs`.
pub fn rates(designs: &Designs) -> Rates {
    std::array::from_fn(|class| designs[class].unseen(class).into())
}

/// The epochs of a process, or of several that were folded into one.
#[derive(Clone, Debug, PartialEq)]
pub struct Epochs {
    /// Totals at the last change: what came since was sampled at `open`.
    marked: ClassTotals,
    /// The rarest rates that were in force since, and those at which what was sampled since is kept.
    open: [(Unseen, Unseen); CLASSES],
    closed: BTreeMap<(u8, Band), Epoch>,
}

impl Epochs {
    /// One, since the attach, at `rates`.
    pub fn new(rates: &Rates) -> Epochs {
        Epochs {
            marked: ClassTotals::default(),
            open: rates.map(|of| (of, of)),
            closed: BTreeMap::new(),
        }
    }

    /// These were in force as well, at any time since the last change.
    pub fn note(&mut self, rates: &Rates) {
        for ((alloc, inuse), rate) in self.open.iter_mut().zip(rates) {
            (*alloc, *inuse) = (alloc.max(*rate), inuse.max(*rate));
        }
    }

    /// Samples of what is held were kept as if everything up to now had been sampled at `rates`.
    pub fn note_thinned(&mut self, rates: &Rates) {
        for ((_, inuse), rate) in self.open.iter_mut().zip(rates) {
            *inuse = inuse.max(*rate);
        }
        for ((class, _), epoch) in &mut self.closed {
            epoch.inuse = epoch.inuse.max(rates[usize::from(*class)]);
        }
    }

    /// Of what was sampled since the last change one in 2^`halvings` was let into the live set.
    pub fn note_declined(&mut self, halvings: u32) {
        let factor = f64::from(halvings).exp2();
        for (alloc, inuse) in &mut self.open {
            let Unseen { objects, bytes } = *alloc;
            *inuse = inuse.max(Unseen { objects: objects * factor, bytes: bytes * factor });
        }
    }

    /// The totals that divide what was sampled before from what is sampled at `next`. `first` were read before `next` came into force, `last`
    /// after it: what was counted between them belongs to the rarer rate.
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

    /// What was counted up to `totals` is closed; from there on `next` is in force.
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

    /// Everything is counted: nothing comes any more.
    pub fn settle(&mut self, totals: &ClassTotals) {
        self.close(totals, &[Unseen::default(); CLASSES]);
    }

    /// Adds those of another process; both are settled.
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

    /// The bands that what comes now belongs to.
    pub fn bands(&self) -> [Band; CLASSES] {
        self.open.map(|(alloc, _)| band(alloc))
    }

    /// The epochs of a class, where `totals` have been counted altogether.
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

    /// An epoch of a class in a window, in which so much of a band was counted.
    ///
    /// What was open in that band may have been noted to be rarer before it was closed, and lies in a later band then: the next one stands for it,
    /// with whatever later ones keep.
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
