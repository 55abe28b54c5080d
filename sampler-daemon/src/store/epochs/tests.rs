use super::*;
use proptest::prelude::*;
use sampler_common::sampling::{Design, Strategy};

/// The class of 64 B blocks.
const CLASS: usize = 3;

fn at(interval: u64) -> Rates {
    rates(&[Design::from_interval(Strategy::Geometric, interval, 1.0).unwrap(); CLASSES])
}

fn counted(bytes: u64) -> ClassTotals {
    let mut totals = ClassTotals::default();
    (totals.bytes[CLASS], totals.objects[CLASS]) = (bytes, bytes / 64);
    totals
}

/// Bytes, and the intervals of allocations and of held blocks in KiB.
fn shown(epochs: &Epochs, bytes: u64) -> Vec<(u64, u64, u64)> {
    let kib = |of: Unseen| (of.bytes / 1024.0).round() as u64;
    let all = epochs.of_class(CLASS, &counted(bytes)).into_iter();
    all.map(|of| (of.bytes, kib(of.alloc), kib(of.inuse))).collect()
}

#[test]
fn totals_are_divided_where_the_rate_changes() {
    let mut epochs = Epochs::new(&at(64 << 10));
    epochs.close(&counted(6400), &at(16 << 20));
    assert_eq!(shown(&epochs, 6400), [(6400, 64, 64)]);
    assert_eq!(shown(&epochs, 7040), [(6400, 64, 64), (640, 16384, 16384)]);
    // The first rate again: one epoch, in two pieces. Within an octave the rarest rate counts.
    epochs.close(&counted(7040), &at(64 << 10));
    epochs.close(&counted(12_800), &at(50 << 10));
    assert_eq!(shown(&epochs, 64_000), [(6400 + 5760 + 51_200, 64, 64), (640, 16384, 16384)]);
    // Totals from an earlier reading change nothing.
    epochs.close(&counted(640), &at(64 << 10));
    assert_eq!(shown(&epochs, 12_800), [(6400 + 5760, 64, 64), (640, 16384, 16384)]);
}

#[test]
fn allocations_around_a_change_have_the_lower_rate() {
    let mut epochs = Epochs::new(&at(64 << 10));
    let (first, last) = (counted(6400), counted(7040));
    assert_eq!(epochs.border(&first, &last, &at(16 << 20)), first);
    assert_eq!(epochs.border(&first, &last, &at(4 << 10)), last);
    // Back-pressure was on for some time since the last change.
    epochs.note(&at(1 << 20));
    epochs.close(&counted(6400), &at(64 << 10));
    assert_eq!(shown(&epochs, 7040), [(640, 64, 64), (6400, 1024, 1024)]);
    let never = rates(&[Design::NEVER; CLASSES]);
    epochs.note(&never);
    assert_eq!((epochs.bands(), band(Unseen::default())), ([UNSAMPLED_BAND; CLASSES], 0));
}

#[test]
fn thinning_raises_the_intervals_of_held_blocks() {
    let mut epochs = Epochs::new(&at(64 << 10));
    epochs.close(&counted(6400), &at(128 << 10));
    epochs.note_thinned(&at(128 << 10));
    assert_eq!(shown(&epochs, 7040), [(6400, 64, 128), (640, 128, 128)]);
    epochs.note_declined(3);
    assert_eq!(shown(&epochs, 7040), [(6400, 64, 128), (640, 128, 1024)]);
    // In a window, the rates are those of the window's bands.
    let window = epochs.in_window(CLASS, epochs.bands()[CLASS], (64, 1));
    assert_eq!((window.bytes, window.objects), (64, 1));
    assert_eq!(window.inuse.bytes, window.alloc.bytes * 8.0);
}

/// Back-pressure rises while it is on: slots that were written before have the band of that time.
#[test]
fn a_window_has_the_lowest_rate_of_its_time() {
    let mut epochs = Epochs::new(&at(64 << 10));
    epochs.note(&at(128 << 10));
    let early = epochs.bands()[CLASS];
    epochs.note(&at(512 << 10));
    let unseen = |epochs: &Epochs| epochs.in_window(CLASS, early, (6400, 100)).alloc.bytes;
    let rarer = at(512 << 10)[CLASS].bytes;
    assert_eq!(unseen(&epochs), rarer, "open");
    epochs.close(&counted(6400), &at(64 << 10));
    epochs.note(&at(16 << 20));
    assert_eq!(unseen(&epochs), rarer, "closed");
    epochs.note_thinned(&at(32 << 20));
    let window = epochs.in_window(CLASS, early, (6400, 100));
    assert_eq!(window.inuse.bytes, at(32 << 20)[CLASS].bytes);
}

#[test]
fn folded_processes_keep_their_epochs() {
    let mut sum = Epochs::new(&at(64 << 10));
    sum.finish(&counted(6400));
    let mut other = Epochs::new(&at(1 << 20));
    other.close(&counted(640), &at(64 << 10));
    other.finish(&counted(704));
    sum.absorb(&other);
    // Folded processes have no allocations beyond these totals.
    assert_eq!(shown(&sum, 6400 + 704), [(6464, 64, 64), (640, 1024, 1024)]);
}

proptest! {
    /// After any changes, the epochs of a class sum to its total.
    #[test]
    fn epochs_sum_to_the_totals(
        turns in prop::collection::vec((0u64..10_000, 1u64..1 << 32, 0u32..4), 0..40), last in 0u64..1000,
    ) {
        let (mut epochs, mut bytes) = (Epochs::new(&at(4096)), 0);
        for (more, interval, kind) in turns {
            bytes += more * 64;
            match kind {
                0 => epochs.note(&at(interval)),
                1 => epochs.note_thinned(&at(interval)),
                _ => epochs.close(&counted(bytes), &at(interval)),
            }
        }
        bytes += last * 64;
        let all = epochs.of_class(CLASS, &counted(bytes));
        let sum = all.iter().fold((0, 0), |sum, of| (sum.0 + of.bytes, sum.1 + of.objects));
        prop_assert_eq!(sum, (bytes, bytes / 64));
        prop_assert!(all.iter().all(|of| of.inuse.bytes >= of.alloc.bytes && of.alloc.bytes > 0.0));
    }
}
