use super::*;
use crate::inspect::mappings;
use crate::unwind::{Image, ModuleId, ModuleKind, Modules};
use sampler_common::share::Holder;

fn file(start: u64, end: u64, path: &str) -> Mapping {
    Mapping {
        start,
        end,
        offset: 0x1000,
        executable: true,
        device: (8, 1),
        inode: path.len() as u64,
        backing: Backing::File(path.to_owned()),
    }
}

fn anonymous(start: u64, end: u64) -> Mapping {
    Mapping { offset: 0, inode: 0, backing: Backing::Anonymous, ..file(start, end, "") }
}

fn paths(history: &History, pid: u32, time_ns: u64) -> Vec<String> {
    let image = history.at(pid, time_ns);
    let paths = image.into_iter().flat_map(|image| image.mappings.iter());
    paths
        .map(|mapping| match &mapping.backing {
            Backing::File(path) => path.clone(),
            _ => "-".to_owned(),
        })
        .collect()
}

fn unread() -> Option<Vec<Mapping>> {
    panic!("the parent is known")
}

/// A shell (1) that forks 2 at 10, which becomes `a` at 20, `b` at 30 and exits at 40.
fn chain() -> History {
    let mut history = History::default();
    history.forked(10, 2, 1, || Some(vec![file(0x1000, 0x2000, "/sh")]));
    history.replaced(20, 2);
    history.mapped(21, 2, file(0x1000, 0x2000, "/a"));
    history.mapped(22, 2, file(0x3000, 0x4000, "/libc"));
    history.replaced(30, 2);
    history.mapped(31, 2, file(0x1000, 0x2000, "/b"));
    history.exited(40, 2);
    history
}

#[test]
fn each_time_has_its_image() {
    let history = chain();
    assert!(history.at(2, 9).is_none());
    assert!(history.at(3, 50).is_none());
    assert_eq!(paths(&history, 1, 5), ["/sh"]);
    assert_eq!(paths(&history, 2, 10), ["/sh"]);
    assert_eq!(paths(&history, 2, 19), ["/sh"]);
    assert_eq!(paths(&history, 2, 25), ["/a", "/libc"]);
    assert_eq!(paths(&history, 2, 39), ["/b"]);
    assert_eq!(history.at(2, 25).unwrap().exe(), Some("/a"));
    // The process's other threads live on.
    assert_eq!(paths(&history, 2, 50), ["/b"]);
    assert_eq!(history.at(2, 50).unwrap().parent, 1);
}

#[test]
fn a_child_keeps_what_its_parent_had() {
    let mut history = chain();
    history.forked(35, 4, 2, unread);
    history.mapped(36, 2, file(0x8000, 0x9000, "/late"));
    history.mapped(37, 4, file(0xa000, 0xb000, "/own"));
    assert_eq!(paths(&history, 4, 38), ["/b", "/own"]);
    assert_eq!(paths(&history, 2, 38), ["/b", "/late"]);
}

#[test]
fn an_already_running_process_is_read_once() {
    let mut history = chain();
    history.add_running(2, unread);
    history.add_running(9, || None);
    assert!(history.at(9, 50).is_none());
    history.add_running(9, || Some(vec![file(0x1000, 0x2000, "/old")]));
    history.add_running(9, unread);
    history.mapped(60, 9, file(0x3000, 0x4000, "/new"));
    assert_eq!(paths(&history, 9, 61), ["/old", "/new"]);
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut history = chain();
    history.forked(60, 2, 1, unread);
    assert_eq!(paths(&history, 2, 39), ["/b"]);
    assert_eq!(paths(&history, 2, 61), ["/sh"]);
}

#[test]
fn ends_are_forgotten_once_their_samples_are_read() {
    let mut history = chain();
    let (held, _) = history.usage();
    history.forget_ended(20, |_| false);
    assert_eq!(history.usage().0, held);
    history.forget_ended(21, |_| false);
    assert!(history.at(2, 15).is_none());
    assert_eq!(paths(&history, 2, 25), ["/a", "/libc"]);
    // The last image of a process that is still attached stays.
    history.forget_ended(100, |pid| pid == 2);
    assert!(history.at(2, 25).is_none());
    assert_eq!(paths(&history, 2, 39), ["/b"]);
    history.forget_ended(100, |_| false);
    assert!(history.at(2, 39).is_none());
    // Only the shell is left.
    assert_eq!((history.usage().0, history.processes.len(), history.ends.len()), (1, 1, 0));
}

#[test]
fn events_out_of_order_find_their_place() {
    let mut history = History::default();
    history.replaced(20, 2);
    history.mapped(21, 2, file(0x1000, 0x2000, "/a"));
    history.forked(10, 2, 1, || Some(vec![file(0x1000, 0x2000, "/sh")]));
    assert_eq!(paths(&history, 2, 15), ["/sh"]);
    assert_eq!(paths(&history, 2, 25), ["/a"]);
}

#[test]
fn a_mapping_takes_the_place_of_others() {
    let mut mappings = vec![file(0x1000, 0x5000, "/a"), file(0x5000, 0x6000, "/b")];
    place(&mut mappings, file(0x2000, 0x3000, "/c"));
    let mut ranges: Vec<_> = mappings.iter().map(|it| (it.start, it.end, it.offset)).collect();
    ranges.sort_unstable();
    assert_eq!(
        ranges,
        [
            (0x1000, 0x2000, 0x1000),
            (0x2000, 0x3000, 0x1000),
            (0x3000, 0x5000, 0x3000),
            (0x5000, 0x6000, 0x1000)
        ]
    );
    place(&mut mappings, file(0x0, 0x10_000, "/d"));
    assert_eq!(mappings, [file(0x0, 0x10_000, "/d")]);
}

#[test]
fn code_that_grows_is_one_mapping() {
    let mut mappings = Vec::new();
    for page in 0..100 {
        place(&mut mappings, anonymous(page * 0x1000, (page + 1) * 0x1000));
    }
    assert_eq!(mappings, [anonymous(0, 100 * 0x1000)]);
}

#[test]
fn mappings_stay_within_their_bounds() {
    let mut history = History::default();
    history.replaced(1, 7);
    for index in 0..=MAX_IMAGE_MAPPINGS as u64 {
        history.mapped(2, 7, file(index * 0x2000, index * 0x2000 + 0x1000, "/a"));
    }
    // Reading from /proc is better than an incomplete image.
    assert!(history.at(7, 3).is_none());
    assert_eq!((history.usage().0, history.refused()), (0, 1));
    for pid in 0..MAX_HELD as u32 / 1000 + 1000 {
        history.forked(10, pid + 10, 1, || {
            Some((0..1000).map(|at| file(at * 0x1000, (at + 1) * 0x1000, "/a")).collect())
        });
        assert!(history.usage().0 <= MAX_HELD);
    }
    assert!(history.refused() > 1000);
    history.clear();
    assert_eq!((history.usage().0, history.processes.len()), (0, 0));
}

/// No process has such a number.
const GONE: u32 = 1 << 30;

#[test]
fn an_exited_process_is_resolved_by_its_history() {
    let own = std::process::id();
    let executable: Vec<Mapping> =
        mappings::read(own).unwrap().into_iter().filter(|mapping| mapping.executable).collect();
    let mut history = History::default();
    history.replaced(1, GONE);
    for mapping in &executable {
        history.mapped(2, GONE, mapping.clone());
    }
    let mut modules = Modules::default();
    let mut image =
        Image::of_past(Holder::of_unknown_user(GONE), history.at(GONE, 3).unwrap(), &mut modules);
    let mut shown = Image::open(Holder::of_unknown_user(own), &mut modules).unwrap();
    let mut known = 0;
    for mapping in executable {
        let address = mapping.start + 16;
        let frame = image.resolve(&mut modules, address);
        assert_eq!(frame, shown.resolve(&mut modules, address), "{mapping:?}");
        known += usize::from(!matches!(modules.get(frame.module).kind, ModuleKind::Unknown));
    }
    // The program, the C library, the loader and the vdso.
    assert!(known >= 4, "{known}");
}

#[test]
fn an_image_follows_its_own_events_only() {
    let mut history = chain();
    let mut modules = Modules::default();
    let mut image =
        Image::of_past(Holder::of_unknown_user(2), history.at(2, 35).unwrap(), &mut modules);
    assert!(image.follow(history.at(2, 35).unwrap(), &mut modules));
    assert!(!image.follow(history.at(2, 25).unwrap(), &mut modules));
    let address = 0x5000_0010;
    assert_eq!(image.resolve(&mut modules, address).module, ModuleId::UNKNOWN);
    history.mapped(36, 2, file(0x5000_0000, 0x5000_1000, "/nowhere/late.so"));
    assert!(image.follow(history.at(2, 37).unwrap(), &mut modules));
    let frame = image.resolve(&mut modules, address);
    assert_eq!(modules.get(frame.module).path, "/nowhere/late.so");
    assert_eq!(frame.offset, 0x1010);
}

/// A process that maps more and more, and forks. Its mappings are read only once.
#[test]
fn forks_of_a_large_process_are_not_read_again() {
    let mut history = History::default();
    let many = || (0..5000).map(|at| file(at * 4096, at * 4096 + 4096, "/lib")).collect();
    let mut reads = 0;
    for fork in 1..1000 {
        history.forked(fork, 1000 + fork as u32, 7, || {
            reads += 1;
            Some(many())
        });
    }
    assert_eq!((reads, history.refused(), history.usage().0), (1, 1, 0));
    // The bound also holds for the process's own mappings, and a path of four kilobytes counts by
    // its size.
    let path = format!("/{}", "x".repeat(4095));
    history.replaced(2000, 7);
    for at in 0..MAX_IMAGE_MAPPINGS as u64 {
        history.mapped(2001 + at, 7, file(at * 4096, at * 4096 + 4096, &path));
    }
    assert!(history.at(7, u64::MAX).is_none() && history.refused() == 2);
    history.forked(9000, 8, 7, unread);
    // The process runs another program.
    history.replaced(9001, 7);
    history.mapped(9002, 7, file(0, 4096, "/b"));
    history.forked(9003, 9, 7, unread);
    assert_eq!(paths(&history, 9, 9004), ["/b"]);
}
