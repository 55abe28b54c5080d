//! What the workloads with a global allocator of their own do. They count what they allocate, from
//! Rust's heap and from `malloc`.
//!
//! ```text
//! rust-…                 allocates in 60 rounds
//! rust-… ROUNDS THREADS  allocates in so many rounds in each of so many threads
//! rust-… checked THREADS so many threads check the contents of their blocks until the end
//! ```
//!
//! The first two implement the protocol of `tests/workloads/protocol.h`. All other allocations of
//! the first one happen before the mark. The third one speaks like `tests/workloads/injected.c`.
#![expect(unsafe_code, reason = "calls malloc, as code in C does")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const USUAL_ROUNDS: usize = 60;
const NAMES: [&str; 6] =
    ["by_vector", "by_zeroes", "by_growth", "by_alignment", "by_malloc", "by_realloc"];

/// What a function has allocated, and how much of that is held.
#[derive(Clone, Copy, Default)]
struct Sums {
    objects: usize,
    bytes: usize,
    held: usize,
    held_bytes: usize,
}

impl Sums {
    fn add(&mut self, size: usize, is_held: bool) {
        self.objects += 1;
        self.bytes += size;
        if is_held {
            self.held += 1;
            self.held_bytes += size;
        }
    }

    fn add_all(&mut self, other: &Sums) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.held += other.held;
        self.held_bytes += other.held_bytes;
    }
}

/// A type with a larger alignment than malloc's blocks have.
#[repr(align(128))]
struct Aligned([u8; 384]);

#[inline(never)]
fn by_vector(size: usize, is_held: bool, sums: &mut Sums) {
    let vector: Vec<u8> = black_box(Vec::with_capacity(size));
    sums.add(size, is_held);
    if is_held {
        std::mem::forget(vector);
    }
}

#[inline(never)]
fn by_zeroes(size: usize, is_held: bool, sums: &mut Sums) {
    let vector = black_box(vec![0u8; size]);
    sums.add(size, is_held);
    if is_held {
        std::mem::forget(vector);
    }
}

#[inline(never)]
fn by_growth(size: usize, is_held: bool, sums: &mut Sums) {
    let mut vector: Vec<u8> = black_box(Vec::with_capacity(size));
    sums.add(size, false);
    vector.push(1);
    // `reserve_exact` allocates exactly this many bytes.
    vector.reserve_exact(size * 3);
    sums.add(vector.capacity(), is_held);
    if is_held {
        std::mem::forget(black_box(vector));
    }
}

#[inline(never)]
fn by_alignment(is_held: bool, sums: &mut Sums) {
    let block = black_box(Box::new(Aligned([7; 384])));
    black_box(&block.0);
    sums.add(size_of::<Aligned>(), is_held);
    if is_held {
        std::mem::forget(block);
    }
}

/// As code in C does that is linked into the program.
#[inline(never)]
fn by_malloc(size: usize, is_held: bool, sums: &mut Sums) {
    // SAFETY: it has no conditions.
    let block = black_box(unsafe { libc::malloc(size) });
    sums.add(size, is_held);
    if !is_held {
        // SAFETY: just allocated.
        unsafe { libc::free(block) };
    }
}

#[inline(never)]
fn by_realloc(size: usize, is_held: bool, sums: &mut Sums) {
    // SAFETY: it has no conditions.
    let block = black_box(unsafe { libc::malloc(size) });
    sums.add(size, false);
    // SAFETY: just allocated.
    let block = black_box(unsafe { libc::realloc(block, size * 2) });
    sums.add(size * 2, is_held);
    if !is_held {
        // SAFETY: just allocated.
        unsafe { libc::free(block) };
    }
}

fn allocate(rounds: usize) -> [Sums; NAMES.len()] {
    let [mut vectors, mut zeroes, mut growths, mut alignments, mut mallocs, mut reallocs] =
        [Sums::default(); NAMES.len()];
    for round in 0..rounds {
        let (size, is_held) = (10 + round % USUAL_ROUNDS * 43, round % 3 == 0);
        by_vector(size, is_held, &mut vectors);
        by_zeroes(size, is_held, &mut zeroes);
        by_growth(size, is_held, &mut growths);
        by_alignment(is_held, &mut alignments);
        by_malloc(size, is_held, &mut mallocs);
        by_realloc(size, is_held, &mut reallocs);
    }
    [vectors, zeroes, growths, alignments, mallocs, reallocs]
}

fn allocate_in_threads(rounds: usize, threads: usize) -> [Sums; NAMES.len()] {
    let mut sums = [Sums::default(); NAMES.len()];
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(move || allocate(rounds))).collect();
        for thread in started {
            // A thread that panics ends the workload.
            let of_thread = thread.join().unwrap_or_else(|_| std::process::abort());
            sums.iter_mut().zip(&of_thread).for_each(|(sum, of)| sum.add_all(of));
        }
    });
    sums
}

fn truth(line: &mut String, sums: &[Sums; NAMES.len()]) {
    let mut comma = "{\"functions\":[";
    for (name, of) in NAMES.iter().zip(sums) {
        let _ = write!(line, "{comma}{{\"name\":\"{name}\"");
        for (kind, objects, bytes) in
            [("alloc", of.objects, of.bytes), ("live", of.held, of.held_bytes)]
        {
            let _ = write!(line, ",\"{kind}\":{{\"objects\":{objects},\"bytes\":{bytes}");
            for key in
                ["expected", "variance_bytes", "cumulant_bytes", "variance_of_variance_bytes"]
            {
                let _ = write!(line, ",\"{key}\":0");
            }
            for key in ["variance_objects", "cumulant_objects", "variance_of_variance_objects"] {
                let _ = write!(line, ",\"{key}\":0");
            }
            for key in ["variance_trials", "cumulant_trials", "variance_of_variance_trials"] {
                let _ = write!(line, ",\"{key}\":0");
            }
            line.push('}');
        }
        line.push('}');
        comma = ",";
    }
    line.push_str("]}");
}

/// Blocks that were checked, and those with wrong contents.
static BLOCKS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static ENDS: AtomicBool = AtomicBool::new(false);

fn check(is_right: bool) {
    BLOCKS.fetch_add(1, Relaxed);
    WRONG.fetch_add(u64::from(!is_right), Relaxed);
}

/// Allocates, moves and frees blocks, and checks their contents, until the end.
fn check_blocks(mut random: u32) {
    const KEPT: usize = 64;
    let mut kept: Vec<Vec<u8>> = vec![Vec::new(); KEPT];
    while !ENDS.load(Relaxed) {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (size, mark) = (1 + (random >> 8) as usize % 5000, (random >> 24) as u8);
        let mut block = black_box(vec![0u8; size]);
        check(block.iter().all(|byte| *byte == 0));
        block.fill(mark);
        block.reserve_exact(size);
        block.extend(std::iter::repeat_n(mark, size));
        let place = &mut kept[random as usize % KEPT];
        let first = place.first().copied();
        check(place.iter().all(|byte| Some(*byte) == first));
        block.truncate(size / 2 + 1);
        block.shrink_to_fit();
        *place = block;
        let aligned = black_box(Box::new(Aligned([mark; 384])));
        check(
            aligned.0.iter().all(|byte| *byte == mark)
                && (&raw const *aligned).addr().is_multiple_of(128),
        );
        check_c_block(size, mark);
    }
}

fn check_c_block(size: usize, mark: u8) {
    // SAFETY: it has no conditions.
    let block = unsafe { libc::malloc(size) };
    // SAFETY: the block has this many bytes.
    unsafe { block.cast::<u8>().write_bytes(mark, size) };
    // SAFETY: just allocated.
    let block = unsafe { libc::realloc(block, size * 2) };
    // SAFETY: `realloc` keeps the first bytes, which were written.
    let bytes = unsafe { std::slice::from_raw_parts(block.cast::<u8>(), size) };
    check(bytes.iter().all(|byte| *byte == mark));
    // SAFETY: just allocated.
    unsafe { libc::free(block) };
}

/// Answers each line with the number of blocks so far.
fn run_checked(threads: u32) -> std::io::Result<()> {
    let mut output = std::io::stdout();
    let workers: Vec<_> =
        (1..=threads).map(|seed| std::thread::spawn(move || check_blocks(seed))).collect();
    writeln!(output, "waiting")?;
    for line in std::io::stdin().lock().lines() {
        if line? == "exit" {
            break;
        }
        let [blocks, wrong] = [&BLOCKS, &WRONG].map(|of| of.load(Relaxed));
        writeln!(output, "{{\"blocks\":{blocks},\"wrong\":{wrong}}}")?;
    }
    ENDS.store(true, Relaxed);
    let has_panicked = workers.into_iter().any(|thread| thread.join().is_err());
    if has_panicked || WRONG.load(Relaxed) > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// The program.
pub(crate) fn run() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
    if arguments.first().is_some_and(|first| first == "checked") {
        return run_checked(number(1).unwrap_or(1) as u32);
    }
    let (rounds, threads) = (number(0).unwrap_or(USUAL_ROUNDS), number(1).unwrap_or(0));
    let mut input = std::io::stdin().lock();
    let mut line = String::with_capacity(1 << 16);
    let mut output = std::io::stdout();
    writeln!(output, "waiting")?;
    input.read_line(&mut line)?;
    line.clear();
    let sums = match threads {
        0 => allocate(rounds),
        threads => allocate_in_threads(rounds, threads),
    };
    truth(&mut line, &sums);
    writeln!(output, "{line}")?;
    line.clear();
    input.read_line(&mut line)?;
    Ok(())
}
