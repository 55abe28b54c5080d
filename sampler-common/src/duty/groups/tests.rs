use super::super::Look;
use super::*;

#[test]
fn processes_fold_with_their_ends() {
    let window = |groups: &mut Groups, bytes| {
        groups.add(100, 0.5, &[bytes; CLASSES], &[1; CLASSES], Pace::default(), Counted::default())
    };
    let (mut sum, mut gone) = (Groups::default(), Groups::default());
    gone.lengthen(7.0);
    assert_eq!((gone.length(), gone.windows(), gone.ticks()), (7.0, 0, 0.0));
    // Nothing was seen of it: the next one's windows are in the same group.
    assert_eq!(sum.fold(&gone), (0, false));
    assert_eq!(window(&mut sum, 3), Added { group: 0, paired: false, share: 0.5 });
    let mut other = Groups::default();
    window(&mut other, 4);
    window(&mut other, 5);
    other.lengthen(-30.0);
    assert_eq!(sum.fold(&other), (1, false));
    assert_eq!((sum.length(), sum.windows(), sum.ticks()), (277.0, 3, 150.0));
    let bytes: Vec<f64> = sum.iter().map(|group| group.bytes[0]).collect();
    assert_eq!(bytes, [6.0, 18.0]);
}

#[test]
fn windows_before_a_tally_was_known_stand_for_what_they_were() {
    const WORD: usize = TRAFFIC + 1;
    // A loop that counts what it allocates; in its first windows, which stood for little, nobody looked. Traps slow it down in every other one.
    let mut groups = Groups::new(Usual::default());
    groups.tallies_mut()[WORD].look(Look { counted: 0, ticks: 100 });
    for at in 0..50u64 {
        let seen = 1000 + 500 * (at % 2);
        let mut objects = [0; CLASSES];
        objects[1] = seen;
        let passed = groups.tallies_mut()[WORD].window([0, seen], [seen as f64; 2]);
        let mut tallied = [None; TALLIES];
        tallied[WORD] = passed.filter(|_| at >= 10);
        let pace = Pace::exact(250_000.0, seen as f64, None, 0.0, &Usual::default());
        let length = if at < 10 { 10 } else { 1000 };
        let share = 10.0 / length as f64;
        groups.add(
            length,
            share,
            &objects,
            &objects,
            pace,
            Counted { tallied, ..Counted::default() },
        );
    }
    let last = Look { counted: 8_000_000, ticks: 40_100 };
    groups.tallies_mut()[WORD].look(last);
    let mut looks = [None; TALLIES];
    looks[WORD] = Some(last);
    let all = Progress { factor: 1.0, tail: 0.0, clock: 40_100.0, looks };
    let (clusters, _) = groups.clusters(&all);
    let total: f64 = clusters.groups.iter().map(|group| group.total[1]).sum();
    assert!(clusters.correction.is_some_and(|of| of.tallied > 0 && of.tally == 1));
    assert!((total / 8_020_000.0 - 1.0).abs() < 0.03, "{total}");
    // It has counted every allocation wherever it was looked at, so that hardly anything is left open by what windows differ in.
    assert!(clusters.of_windows() < 3e-7, "{}", clusters.of_windows());
}

#[test]
fn what_becomes_known_later_holds_for_windows_before() {
    let [before, after] =
        [25.0, 90.0].map(|median_ns| Usual { median_ns, spread: 0.7, power: 1.5, floor_ns: 0.0 });
    let pace = Pace::exact(300_000.0, 1000.0, None, 0.0, &after);
    let total = |first: Usual| {
        let mut groups = Groups::new(first);
        (0..40).for_each(|_| {
            groups.add(100, 0.01, &[1000; CLASSES], &[1; CLASSES], pace, Counted::default());
        });
        groups.set_usual(after);
        let (clusters, _) = groups.clusters(&Progress::of_strata());
        clusters.groups.iter().map(|group| group.total[0]).sum::<f64>()
    };
    let (late, always) = (total(before), total(after));
    // To first order: windows were corrected by what differed a little from one to the next.
    assert!((late / always - 1.0).abs() < 1e-3, "{late} {always}");
    let uncorrected = 40.0 * 1000.0 * CLASSES as f64 / 0.01;
    assert!(always > 1.2 * uncorrected, "{always} {uncorrected}");
}

#[test]
fn however_many_windows_the_sums_stay() {
    let mut groups = Groups::default();
    let mut row: Vec<f64> = Vec::new();
    for number in 0..1000u64 {
        let mut bytes = [0; CLASSES];
        bytes[3] = number;
        let Added { group, paired, .. } = groups.add(
            100 + number,
            0.5,
            &bytes,
            &[1; CLASSES],
            Pace::default(),
            Counted::default(),
        );
        if paired {
            row = row.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        row.resize(row.len().max(usize::from(group) + 1), 0.0);
        row[usize::from(group)] += number as f64 * 2.0;
    }
    assert!(groups.iter().count() <= MAX_GROUPS && groups.iter().count() > MAX_GROUPS / 2);
    assert_eq!(groups.windows(), 1000);
    assert_eq!(groups.length(), 100.0 * 1000.0 + 499_500.0);
    let sums: Vec<f64> = groups.iter().map(|group| group.bytes[3]).collect();
    assert_eq!(sums, row);
    assert_eq!(groups.ticks(), groups.length() / 2.0);
    // All but the last have as many.
    let first = groups.iter().next().unwrap().windows;
    assert!(groups.iter().take(row.len() - 1).all(|group| group.windows == first));
}
