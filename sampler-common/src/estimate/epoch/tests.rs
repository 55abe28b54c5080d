use super::*;
use crate::estimate::Sample;
use crate::sampling::{Design, Strategy};

const SIZE: u64 = 64;
const CLASS: usize = 3;

fn design(interval: u64) -> Design {
    Design::from_interval(Strategy::Geometric, interval, 1.0).unwrap()
}

fn epoch(interval: u64, bytes: u64) -> Epoch {
    let unseen = design(interval).unseen(CLASS).into();
    Epoch { bytes, objects: bytes / SIZE, alloc: unseen, inuse: unseen }
}

/// The capacity in bytes of a row with a sample at each of `intervals`: for one unit of hazard, and
/// for any hazard.
fn capacity(epochs: &[Epoch], intervals: &[u64], others: u64) -> (f64, f64) {
    let (mut own, mut totals) = (RowMoments::default(), StratumTotals::default());
    intervals.iter().for_each(|of| own.add_allocation(&Sample::new(SIZE, design(*of))));
    totals.sampled = own;
    (0..others).for_each(|_| {
        totals.sampled.add_allocation(&Sample::new(SIZE, design(64 << 10)));
    });
    totals.exact =
        Some(epochs.iter().fold((0, 0), |sum, of| (sum.0 + of.bytes, sum.1 + of.objects)));
    let mut capacity = UnseenCapacity::default();
    let confidence = Confidence::DEFAULT;
    add_capacity(&mut capacity, (&totals, epochs), Some(&own), Quantity::AllocSpace, confidence);
    (capacity.at(1.0), capacity.most())
}

#[test]
fn a_row_has_capacity_in_epochs_without_its_samples() {
    let (short, long) = (64 << 10, 16 << 20);
    let epochs = [epoch(short, 1 << 30), epoch(long, 1 << 20)];
    // All of the long epoch, and fifteen sixteenths of a short interval.
    let (spent, most) = capacity(&epochs, &[], 0);
    assert!((spent - f64::from((1 << 20) + (60 << 10))).abs() < 100.0, "{spent}");
    assert_eq!(most, f64::from((1 << 30) + (1 << 20)));
    // A sample of the short interval leaves the long epoch, a sample of the long interval nothing.
    assert_eq!(capacity(&epochs, &[short], 0), (f64::from(1 << 20), f64::from(1 << 20)));
    assert_eq!(capacity(&epochs, &[long], 0), (0.0, 0.0));
    assert_eq!(capacity(&epochs, &[short, long], 0), (0.0, 0.0));
    assert_eq!(capacity(&[], &[], 0), (0.0, 0.0));
}

#[test]
fn the_next_sample_may_be_of_a_longer_interval() {
    let (short, long) = (64 << 10, 16 << 20);
    let stratum = Stratum { process: 0, class: CLASS as u8 };
    let next = |at_long: u64, intervals: &[u64]| {
        let epochs = vec![epoch(short, 1 << 30), epoch(long, at_long)];
        let (mut row, mut reference) = (Row::default(), Reference::default());
        for interval in intervals {
            row.stratum(stratum).add_allocation(&Sample::new(SIZE, design(*interval)));
        }
        reference.add(&row);
        let exact = Some(((1 << 30) + at_long, ((1 << 30) + at_long) / SIZE));
        reference.strata.get_mut(&stratum).unwrap().exact = exact;
        reference.epochs.insert(stratum, epochs);
        let before = row.total().alloc_space;
        (reference.with_next(&row, &before, true, false).largest, before.largest)
    };
    let (after, before) = next(1 << 40, &[short]);
    assert!((after / long as f64 - 1.0).abs() < 1e-3 && before < 65536.0, "{after} {before}");
    // What was allocated, and then one more event of the short interval.
    let (after, _) = next(1 << 20, &[short]);
    assert!((after / ((1 << 20) + (64 << 10)) as f64 - 1.0).abs() < 0.05, "{after}");
    let (after, before) = next(1 << 40, &[short, long]);
    assert_eq!(after, before);
}

#[test]
fn sampled_bytes_are_not_counted_as_unseen() {
    let (short, long) = (64 << 10, 16 << 20);
    let epochs = [epoch(short, 640), epoch(long, 640)];
    assert_eq!(capacity(&epochs, &[], 5).1, 1280.0 - 320.0);
    assert_eq!(capacity(&epochs, &[short], 5).1, 640.0);
    assert_eq!(capacity(&epochs, &[short], 12).1, 1280.0 - 13.0 * 64.0);
}
