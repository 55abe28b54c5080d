use super::super::fixture;
use super::*;

fn names<'a>(tree: &'a Tree) -> Vec<(usize, &'a str)> {
    let of = |frame: &Frame| tree.functions[frame.function].name;
    tree.frames.iter().map(|frame| (frame.depth, of(frame))).collect()
}

#[test]
fn small_frames_are_left_out_with_their_callees() {
    let profile = fixture::profile(Kind::Alloc);
    let roots = Roots::of(&profile);
    let whole = Tree::of(&profile, &roots, Measure::Space, 1000);
    assert_eq!(whole.left_out, 0);
    for frames in 0..whole.frames.len() {
        let tree = Tree::of(&profile, &roots, Measure::Space, frames);
        assert_eq!((tree.frames.len(), tree.left_out), (frames, whole.frames.len() - frames));
        let smallest =
            tree.frames.iter().map(|frame| frame.estimate.value).fold(f64::MAX, f64::min);
        let larger = whole.frames.iter().filter(|frame| frame.estimate.value > smallest).count();
        assert!(larger <= frames);
        assert!(names(&tree).iter().all(|frame| names(&whole).contains(frame)));
        assert!(tree.width == whole.width);
    }
}

#[test]
fn intervals_are_of_summed_rows() {
    let profile = fixture::profile(Kind::Alloc);
    let roots = Roots::of(&profile);
    // A limit of frames changes no frame's numbers.
    for bound in [4, 1000] {
        let tree = Tree::of(&profile, &roots, Measure::Space, bound);
        let main = names(&tree).iter().position(|(_, name)| *name == "main").unwrap();
        let mut row = Row::default();
        let stacks = profile
            .stacks
            .iter()
            .filter(|stack| stack.pid == 4121)
            .filter(|stack| profile.frames(stack).any(|line| line.function == "main"));
        stacks.for_each(|stack| row.add(&stack.row));
        let expected = profile.quantities_of(&row).alloc_space.estimate;
        let got = tree.frames[main].estimate;
        assert!((got.value / expected.value - 1.0).abs() < 1e-12);
        assert!((got.low / expected.low - 1.0).abs() < 1e-9);
        assert!((got.high / expected.high - 1.0).abs() < 1e-9);
    }
}

#[test]
fn processes_come_first_and_siblings_are_ordered_by_name() {
    let mut profile = fixture::profile(Kind::Alloc);
    let below = |profile: &Profile| {
        let roots = Roots::of(profile);
        let tree = Tree::of(profile, &roots, Measure::Objects, 1000);
        let outer = names(&tree).into_iter().filter(|(depth, _)| *depth < 2);
        outer.map(|(depth, name)| format!("{depth} {name}")).collect::<Vec<_>>()
    };
    let [lost, start] = ["[lost stacks]", "__libc_start_call_main"];
    let [first, second] = ["kvstore (pid 4121)", "kvstore (pid 4122)"];
    assert_eq!(
        below(&profile),
        [
            format!("0 {first}"),
            format!("1 {lost}"),
            format!("1 {start}"),
            format!("0 {second}"),
            format!("1 {start}")
        ]
    );
    profile.stacks.retain(|stack| stack.pid == 4121);
    assert_eq!(below(&profile)[..2], [format!("0 {lost}"), format!("0 {start}")]);
}
