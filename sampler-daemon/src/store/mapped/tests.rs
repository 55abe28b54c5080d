//! Compares the store with a map of pages.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PROCESS: ProcessId = ProcessId(3);
/// Pages of each thread. Threads use separate pages: simultaneous calls on the same memory have no
/// defined order.
const PAGES: u64 = 40;

fn piece(origin: Origin) -> Piece {
    let stack = StackId::LOST;
    Piece { process: PROCESS, user: 1, stack, origin, size: 0, held: 0, time_ns: 5 }
}

/// A call of a thread on its own pages.
#[derive(Clone, Debug)]
enum Call {
    Map { at: u64, pages: u64, origin: Option<Origin> },
    Unmap { at: u64, pages: u64 },
    Remap { at: u64, pages: u64, wanted: u64, to: Option<u64>, keeps: bool },
}

fn call() -> impl Strategy<Value = Call> {
    let origin = prop_oneof![
        3 => Just(Some(Origin::Direct)),
        1 => Just(Some(Origin::Allocator)),
        1 => Just(None),
    ];
    let (at, pages) = (0..PAGES, 1..12u64);
    prop_oneof![
        3 => (at.clone(), pages.clone(), origin)
            .prop_map(|(at, pages, origin)| Call::Map { at, pages, origin }),
        2 => (at.clone(), pages.clone()).prop_map(|(at, pages)| Call::Unmap { at, pages }),
        2 => (at.clone(), pages.clone(), pages, prop::option::weighted(0.8, at), prop::bool::weighted(0.2))
            .prop_map(|(at, pages, wanted, to, keeps)| Call::Remap { at, pages, wanted, to, keeps }),
    ]
}

/// The number of the latest mapping call of every page, counted in the order of calls.
#[derive(Default)]
struct Oracle {
    pages: BTreeMap<u64, usize>,
    /// Pages and origin of each piece.
    pieces: Vec<(u64, Origin)>,
}

impl Oracle {
    fn map(&mut self, at: u64, pages: u64, origin: Option<Origin>) {
        self.remove(at, pages);
        if let Some(origin) = origin {
            self.pieces.push((pages, origin));
            (at..at + pages).for_each(|page| {
                self.pages.insert(page, self.pieces.len() - 1);
            });
        }
    }

    fn remove(&mut self, at: u64, pages: u64) -> Vec<(u64, usize)> {
        let covered: Vec<(u64, usize)> =
            self.pages.range(at..at + pages).map(|(page, piece)| (*page, *piece)).collect();
        covered.iter().for_each(|(page, _)| {
            self.pages.remove(page);
        });
        covered
    }

    fn remap(&mut self, at: u64, pages: u64, wanted: u64, to: u64, keeps: bool) {
        let last = self.pages.get(&(at + pages - 1)).copied();
        let moved = self.remove(at, pages);
        if keeps {
            self.pages.extend(moved.iter().copied());
        }
        self.remove(to, wanted);
        let mut from = 0;
        if !keeps {
            let moved = moved.into_iter().map(|(page, piece)| (page - at, piece));
            self.pages.extend(moved.filter(|(page, _)| *page < wanted).map(|(p, i)| (p + to, i)));
            from = pages;
        }
        if let Some(last) = last.filter(|_| wanted > from) {
            let origin = self.pieces[last].1;
            self.pieces.push((wanted - from, origin));
            for page in to + from..to + wanted {
                self.pages.insert(page, self.pieces.len() - 1);
            }
        }
    }

    fn totals(&self, origin: Origin) -> Totals {
        let mut totals = Totals::default();
        for (index, (pages, of)) in self.pieces.iter().enumerate() {
            let held = self.pages.values().filter(|piece| **piece == index).count() as u64;
            if *of == origin {
                totals.mapped.add(pages * PAGE, 1);
                totals.held.add(held * PAGE, u64::from(held > 0));
            }
        }
        totals
    }
}

/// The two steps of a call: its beginning, and its end if it has one.
struct Steps<'a> {
    mapped: &'a mut Mapped,
    tid: u32,
    base: u64,
}

impl Steps<'_> {
    fn address(&self, page: u64) -> u64 {
        (self.base + page) * PAGE
    }

    fn of(&self, call: &Call) -> Remap {
        let Call::Remap { at, pages, wanted, keeps, .. } = *call else { unreachable!() };
        Remap {
            old: self.address(at),
            // Not whole pages: the kernel rounds up.
            old_length: pages * PAGE - 1,
            length: wanted * PAGE - 100,
            flags: if keeps { 5 } else { 1 },
        }
    }

    fn begin(&mut self, call: &Call) {
        let (tid, base) = (self.tid, self.base * PAGE);
        match call {
            Call::Map { at, pages, origin } => {
                let by = origin.map(piece);
                self.mapped.map(PROCESS, tid, base + at * PAGE, pages * PAGE - 7, by);
            }
            Call::Unmap { at, pages } => {
                self.mapped.unmap(PROCESS, tid, base + at * PAGE, pages * PAGE);
            }
            Call::Remap { .. } => self.mapped.remap_begins(PROCESS, tid, self.of(call)),
        }
    }

    fn end(&mut self, call: &Call) {
        if let Call::Remap { to, .. } = call {
            let (of, to) = (self.of(call), to.map(|to| self.address(to)));
            self.mapped.remap_ends(PROCESS, self.tid, of, to, 9);
        }
    }
}

fn apply(oracle: &mut Oracle, base: u64, call: &Call) {
    match *call {
        Call::Map { at, pages, origin } => oracle.map(base + at, pages, origin),
        Call::Unmap { at, pages } => {
            oracle.remove(base + at, pages);
        }
        Call::Remap { to: None, .. } => {}
        Call::Remap { at, pages, wanted, to: Some(to), keeps } => {
            oracle.remap(base + at, pages, wanted, base + to, keeps);
        }
    }
}

/// Whether the kernel accepts the call: it refuses to move a range onto itself.
fn is_possible(call: &Call) -> bool {
    match *call {
        Call::Remap { at, pages, wanted, to: Some(to), keeps } => {
            let in_place = at == to && !keeps;
            in_place || to >= at + pages || to + wanted <= at
        }
        _ => true,
    }
}

proptest! {
    #[test]
    fn the_store_is_a_map_of_pages(
        calls in prop::collection::vec((call(), call(), any::<bool>()), 1..60),
    ) {
        let mut mapped = Mapped::new(0);
        let mut oracle = Oracle::default();
        prop_assert!(mapped.of_image(PROCESS, 1));
        let bases = [100, 100 + 2 * PAGES];
        for (first, second, inside) in calls {
            let calls = [first, second].map(|call| Some(call).filter(is_possible));
            let mut step = |thread: usize, ends: bool| {
                let Some(call) = &calls[thread] else { return };
                let mut steps = Steps { mapped: &mut mapped, tid: thread as u32, base: bases[thread] };
                if ends { steps.end(call) } else { steps.begin(call) }
            };
            // The second thread's call is within the first one's, or begins in it.
            let order = if inside { [(0, false), (1, false), (1, true), (0, true)] }
                else { [(0, false), (1, false), (0, true), (1, true)] };
            order.into_iter().for_each(|(thread, ends)| step(thread, ends));
            for thread in 0..2 {
                if let Some(call) = &calls[thread] {
                    apply(&mut oracle, bases[thread], call);
                }
            }
            // The order of pieces may differ where calls overlap, so only sums are compared.
            let totals = mapped.totals().get(&PROCESS).copied().unwrap_or_default();
            prop_assert_eq!(totals.directly, oracle.totals(Origin::Direct));
            prop_assert_eq!(totals.by_allocators, oracle.totals(Origin::Allocator));
            let held: u64 = mapped.ranges_of(PROCESS).iter().map(|(part, _)| part.bytes()).sum();
            prop_assert_eq!(held, oracle.pages.len() as u64 * PAGE);
        }
        prop_assert_eq!((mapped.unheld, mapped.unpaired), (0, 0));
        mapped.end(PROCESS);
        prop_assert!(mapped.is_empty() && mapped.pieces.is_empty());
    }
}

#[test]
fn the_heap_grows_and_shrinks_by_its_end() {
    let mut mapped = Mapped::new(0);
    for ends in [[0x1_0000, 0x1_2345], [0x1_2345, 0x1_2346], [0x1_2346, 0x1_1000]] {
        mapped.break_moves(PROCESS, 1, ends, piece(Origin::Direct));
    }
    let totals = mapped.totals()[&PROCESS].directly;
    // Growth within a page maps nothing.
    assert_eq!(totals.mapped, Sum { bytes: 0x3000, calls: 1 });
    assert_eq!(totals.held, Sum { bytes: 0x1000, calls: 1 });
}

#[test]
fn a_new_program_image_begins_without_mappings() {
    let mut mapped = Mapped::new(0);
    assert!(mapped.of_image(PROCESS, 4));
    mapped.map(PROCESS, 1, 0x1000, 5000, Some(piece(Origin::Direct)));
    mapped.unmap(PROCESS, 1, 0x1000, 4096);
    assert!(mapped.of_image(PROCESS, 5));
    assert!(mapped.is_empty() && mapped.pieces.is_empty());
    // A late call of the old image.
    assert!(!mapped.of_image(PROCESS, 4));
    assert_eq!(mapped.totals()[&PROCESS].directly.mapped, Sum { bytes: 8192, calls: 1 });
}

#[test]
fn ranges_beyond_the_bound_are_counted_only() {
    let mut mapped = Mapped { bound: 2, ..Mapped::new(0) };
    for at in 0..3 {
        mapped.map(PROCESS, 1, at * 0x10_000, 0x3000, Some(piece(Origin::Direct)));
    }
    assert_eq!((mapped.len(), mapped.unheld), ((2, 2), 1));
    // A gap would make three ranges of two.
    mapped.unmap(PROCESS, 1, 0x1000, 0x1000);
    assert_eq!((mapped.len(), mapped.unheld), ((2, 2), 2));
    let totals = mapped.totals()[&PROCESS].directly;
    assert_eq!((totals.mapped.calls, totals.held.bytes), (3, 0x4000));
    mapped.end(PROCESS);
    assert!(mapped.is_empty() && mapped.pieces.is_empty());
}

#[test]
fn a_lost_end_of_a_remap_is_counted() {
    let mut mapped = Mapped::new(0);
    let of = Remap { old: 0x1000, old_length: 0x2000, length: 0x4000, flags: 1 };
    mapped.map(PROCESS, 1, 0x1000, 0x2000, Some(piece(Origin::Direct)));
    mapped.remap_begins(PROCESS, 1, of);
    mapped.unmap(PROCESS, 1, 0x9000, 0x1000);
    assert_eq!((mapped.unpaired, mapped.is_empty()), (1, true));
    // The move of an unknown range leaves nothing known.
    mapped.remap_begins(PROCESS, 1, of);
    mapped.remap_ends(PROCESS, 1, of, Some(0x8000), 7);
    assert_eq!((mapped.unpaired, mapped.is_empty(), mapped.pieces.len()), (1, true, 0));
}

#[test]
fn shared_memory_is_mapped_twice() {
    let mut mapped = Mapped::new(0);
    mapped.map(PROCESS, 1, 0x1000, 0x2000, Some(piece(Origin::Direct)));
    let of = Remap { old: 0x1000, old_length: 0, length: 0x2000, flags: 1 };
    mapped.remap_begins(PROCESS, 1, of);
    mapped.remap_ends(PROCESS, 1, of, Some(0x8000), 7);
    assert_eq!(mapped.totals()[&PROCESS].directly.held, Sum { bytes: 0x4000, calls: 2 });
}
