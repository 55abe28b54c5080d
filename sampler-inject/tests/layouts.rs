//! Plans for every library of the corpus in 600 random address spaces, laid out as Linux does it.
//!
//! The kernel puts the main thread's stack near the top and all other mappings below a random gap,
//! each below the one before. An executable and its heap lie 32 TiB below.

mod corpus;

use std::ops::Range;

use corpus::{Library, elsewhere, libraries, random};
use sampler_inject::plan::{Candidate, HEAP_GROWTH_BYTES, Layout, PAGE_BYTES, Plan, plan};
use sampler_inject::prologue::{places_with, trampoline_length};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TOP: u64 = 0x7fff_ffff_f000;
/// `RLIMIT_STACK` of every distribution.
const STACK_LIMIT: u64 = 8 * MIB;
const LAYOUTS: usize = 600;

/// What a program has mapped below its libraries.
#[derive(Clone, Copy, Debug)]
enum Program {
    /// Libraries and a few MiB.
    Small,
    /// 500 threads, each with a stack of 8 MiB.
    Threads,
    /// A pool of 3 GiB right below the libraries, as a database has it.
    Pool,
}

struct Space {
    mapped: Vec<Range<u64>>,
    heap: Range<u64>,
    stack: Range<u64>,
    /// Where the allocator lies.
    base: u64,
}

impl Space {
    fn new(program: Program, allocator_bytes: u64, state: &mut u64) -> Space {
        let stack_end = TOP - random(state) % (1 << 22) * PAGE_BYTES;
        let stack = stack_end - 132 * 1024..stack_end;
        // MIN_GAP, the largest random offset of a stack, the guard gap, and 28 random bits of
        // pages.
        let gap = 128 * MIB + 16 * GIB + MIB;
        let mut next = TOP - gap - random(state) % (1 << 28) * PAGE_BYTES;
        let mut mapped = vec![stack.clone()];
        let mut map = |bytes: u64| {
            next -= bytes.next_multiple_of(PAGE_BYTES);
            mapped.push(next..next + bytes.next_multiple_of(PAGE_BYTES));
            next
        };
        for _ in 0..random(state) % 40 {
            map(16 * 1024 + random(state) % (3 * MIB));
        }
        let base = map(allocator_bytes);
        for _ in 0..random(state) % 40 {
            map(16 * 1024 + random(state) % (3 * MIB));
        }
        match program {
            Program::Small => _ = map(random(state) % (64 * MIB)),
            Program::Threads => (0..500).for_each(|_| _ = map(8 * MIB + PAGE_BYTES)),
            Program::Pool => _ = map(3 * GIB),
        }
        let executable = 0x5555_5555_4000 + random(state) % (1 << 28) * PAGE_BYTES;
        mapped.push(executable..executable + 4 * MIB);
        let start = executable + 5 * MIB + random(state) % (1 << 13) * PAGE_BYTES;
        let heap = start..start + random(state) % (256 * MIB) / PAGE_BYTES * PAGE_BYTES;
        mapped.push(heap.clone());
        Space { mapped, heap, stack, base }
    }

    fn layout(&self) -> Layout {
        let mapped = self.mapped.iter().cloned();
        let heap = self.heap.start..self.heap.end + HEAP_GROWTH_BYTES[0];
        Layout::new(mapped, Some(heap), Some(self.stack.clone()), STACK_LIMIT)
    }
}

/// How far the plans went.
#[derive(Debug, Default)]
struct Counts {
    layouts: usize,
    functions: usize,
    first_place: usize,
    other_place: usize,
    unplaced: usize,
    pages: usize,
}

/// The functions of the malloc family of a library, but for those that are a jump to another function.
fn functions(library: &Library) -> Vec<&corpus::Entry> {
    let is_hooked = |entry: &&corpus::Entry| {
        corpus::is_of_malloc_family(entry.names[0]) && entry.bytes[0] != 0xe9
    };
    library.functions.iter().filter(is_hooked).collect()
}

fn in_layouts(program: Program) -> Counts {
    let libraries = libraries();
    let mut counts = Counts::default();
    let mut state = 600;
    for number in 0..LAYOUTS {
        let library = &libraries[number % libraries.len()];
        let functions = functions(library);
        let last = library.functions.iter().map(|entry| entry.address).max();
        let space = Space::new(program, last.unwrap_or_default() + 2 * MIB, &mut state);
        let candidates: Vec<Candidate> = functions
            .iter()
            .map(|entry| {
                let function = entry.function_at(space.base);
                let jumps = entry.jumps_at(space.base);
                Candidate { function, places: places_with(&function, &elsewhere(&jumps)) }
            })
            .collect();
        let plan = plan(&candidates, &space.layout());
        check(&plan, &space, library.head);
        counts.layouts += 1;
        counts.functions += candidates.len();
        counts.unplaced += plan.unplaced.len();
        counts.pages += plan.pages.len();
        for hook in &plan.hooks {
            let is_first = hook.place == candidates[hook.candidate].places[0];
            *(if is_first { &mut counts.first_place } else { &mut counts.other_place }) += 1;
        }
    }
    println!("{program:?}: {counts:?}");
    counts
}

/// What must hold of every plan: nothing of the target is touched, and every landing has its own
/// bytes.
fn check(plan: &Plan, space: &Space, name: &str) {
    for page in &plan.pages {
        let page = *page..*page + PAGE_BYTES;
        let is_outside = |range: &Range<u64>| range.end <= page.start || page.end <= range.start;
        assert!(space.mapped.iter().all(is_outside), "{name}: {page:x?} is mapped");
    }
    let mut used = Vec::new();
    for hook in &plan.hooks {
        let length = trampoline_length(&hook.place);
        used.extend(hook.place.landings.iter().map(|landing| *landing..landing + length));
        used.extend(hook.slots.iter().map(|slot| *slot..slot + 8));
        used.push(hook.original..hook.original + 1);
    }
    used.sort_by_key(|range| range.start);
    assert!(used.windows(2).all(|pair| pair[0].end <= pair[1].start), "{name}: {used:x?}");
    let is_planned = |address: u64| plan.pages.contains(&(address / PAGE_BYTES * PAGE_BYTES));
    assert!(used.iter().all(|range| is_planned(range.start) && is_planned(range.end - 1)));
}

#[test]
fn all_functions_are_hooked_in_600_small_programs() {
    let counts = in_layouts(Program::Small);
    assert_eq!((counts.layouts, counts.unplaced), (LAYOUTS, 0));
    assert!(counts.first_place * 100 >= counts.functions * 95, "{counts:?}");
}

#[test]
fn other_places_are_used_if_the_first_is_occupied() {
    for program in [Program::Threads, Program::Pool] {
        let counts = in_layouts(program);
        assert!(counts.other_place > 0, "{counts:?}");
        // All distances below zero lead into what is taken. Some functions have no others.
        assert!(counts.unplaced * 5 <= counts.functions, "{counts:?}");
    }
}
