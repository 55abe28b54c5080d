use super::*;

const MS: f64 = 1e6;

/// So many functions wait to be tried.
fn waiting(count: u64) -> Markers {
    let spots = (0..count).rev().map(Spot::in_this_program);
    Markers { waiting: spots.collect(), ..Markers::default() }
}

fn calls(of: &[u64]) -> [u64; MARKERS] {
    std::array::from_fn(|number| of.get(number).copied().unwrap_or(0))
}

fn offsets(markers: &Markers) -> Vec<u64> {
    markers.probed().iter().map(|spot| spot.offset).collect()
}

/// Eight are tried for 3 ms in which these calls are counted; one each 5 µs may be.
fn tried(of: &[u64]) -> Markers {
    let mut markers = waiting(12);
    assert!(markers.choose() && offsets(&markers) == (0..8).collect::<Vec<_>>());
    markers.counted(&calls(of), false, 3.0 * MS, 5_000.0);
    assert!(markers.alone.is_none(), "a trial tells nothing");
    // Whatever others have told is forgotten.
    let are_new = !markers.probed.is_empty();
    assert_eq!(markers.told(&calls(&[]), 20_000.0).1 == Verdict::Differs, are_new);
    markers
}

#[test]
fn what_is_called_neither_too_often_nor_too_rarely_is_one() {
    // Each 3 µs, never, each 10 µs, each 300 µs, each 20 µs, and what is too much together.
    let mut markers = tried(&[1000, 0, 300, 10, 150, 250]);
    assert_eq!(offsets(&markers), [2, 4]);
    // Enough of them: nothing else is tried.
    assert!(markers.choose() && offsets(&markers) == [2, 4]);
    markers.counted(&calls(&[600, 300]), false, 6.0 * MS, 5_000.0);
    let told = markers.told(&calls(&[150, 70]), 20_000.0);
    let expected = Marked { inside: 220.0, own: 220.0, alone: 900.0, alone_ns: 6.0 * MS };
    assert_eq!(told, (Some(expected), Verdict::Open));
    assert_eq!(markers.told(&calls(&[150, 70]), 20_000.0), (None, Verdict::Open), "once");
}

#[test]
fn the_others_are_tried_again_where_one_is_called_all_the_time() {
    let mut markers = waiting(9);
    markers.choose();
    markers.counted(&calls(&[0, 1, 900, 2, 30]), true, 0.1 * MS, 5_000.0);
    assert_eq!(markers.told(&calls(&[]), 20_000.0), (None, Verdict::Open));
    // Not the third, nor the fifth, which is called each 3 µs.
    assert!(markers.choose() && offsets(&markers) == [0, 1, 3, 5, 6, 7, 8]);
    markers.fail();
    assert!(!markers.choose() && offsets(&markers).is_empty());
}

#[test]
fn what_another_cuts_short_tells_of_the_rest_as_well() {
    let mut markers = waiting(9);
    markers.choose();
    // Never, each 20 µs, all the time, each 8 µs, which may be 4, each 3 µs, and too rarely for so short a trial.
    markers.counted(&calls(&[0, 50, 900, 125, 330, 4]), true, 1.0 * MS, 5_000.0);
    assert_eq!(markers.told(&calls(&[]), 20_000.0).1, Verdict::Differs, "nothing is known of it");
    assert_eq!((offsets(&markers), markers.gap_ns), (vec![1], 20_000.0));
    assert!(markers.choose() && offsets(&markers) == [1], "enough of them");
}

#[test]
fn where_none_is_the_next_ones_are_tried() {
    let mut markers = tried(&[2000, 0, 0, 1, 0, 0, 0, 2000]);
    assert!(markers.choose() && offsets(&markers) == [8, 9, 10, 11]);
    markers.counted(&calls(&[]), false, 3.0 * MS, 5_000.0);
    assert!(!markers.choose(), "all have been tried");
}

#[test]
fn a_few_are_added_to() {
    let mut markers = tried(&[0, 20]);
    assert!(markers.choose() && offsets(&markers) == [1, 8, 9, 10, 11]);
    let window = Window { marking: 200, ..WINDOW };
    assert_eq!(markers.ticks(&window), TRIAL);
    markers.counted(&calls(&[20, 0, 100]), false, 3.0 * MS, 5_000.0);
    assert_eq!((offsets(&markers), markers.ticks(&window)), (vec![1, 9], 200));
}

#[test]
fn what_was_none_is_not_listed_again() {
    // All the time, and one that does not follow; the others were called too rarely for now.
    let mut markers = tried(&[1000, 0, 300]);
    markers.forget(|_| false);
    markers.list((0..5).map(Spot::in_this_program).collect());
    assert!(markers.choose() && offsets(&markers) == [1, 3, 4]);
}

#[test]
fn markers_that_are_called_too_often_in_some_phase_are_none() {
    let mut markers = tried(&[0, 300]);
    markers.counted(&calls(&[2000]), true, 1.0 * MS, 5_000.0);
    assert_eq!(markers.told(&calls(&[2000]), 20_000.0), (None, Verdict::Differs));
    assert!(markers.probed().is_empty());
}

#[test]
fn what_does_not_follow_allocations_is_given_up() {
    let mut markers = tried(&[0, 300, 0, 200]);
    let mut last = (None, Verdict::Open);
    for at in 0..40 {
        markers.counted(&calls(&[200, 200]), false, 6.0 * MS, 5_000.0);
        last = markers.told(&calls(&[100, if at % 4 == 0 { 800 } else { 0 }]), 20_000.0);
        if last.1 == Verdict::Differs {
            break;
        }
    }
    let expected = ((None, Verdict::Differs), vec![1]);
    assert_eq!((last, offsets(&markers)), expected, "the other remains");
}

const WINDOW: Window = Window {
    length: 1000,
    offset: 0,
    marking: 0,
    ticks: 40,
    fine: true,
    frees: false,
    interval_bytes: 4096,
    length_ns: 5.0 * MS,
    share: 0.01,
};
