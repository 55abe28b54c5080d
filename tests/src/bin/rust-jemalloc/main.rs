//! A workload in Rust with jemalloc linked in, as in many programs. The workload counts what it
//! allocates.
//!
//! The workload implements the protocol of `tests/workloads/protocol.h`. All other allocations
//! happen before the mark.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{BufRead as _, Write as _};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What a function has allocated, and how much of that is held.
#[derive(Default)]
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

fn main() -> std::io::Result<()> {
    let mut input = std::io::stdin().lock();
    let mut line = String::with_capacity(1 << 16);
    let mut output = std::io::stdout();
    writeln!(output, "waiting")?;
    input.read_line(&mut line)?;
    line.clear();

    let [mut vectors, mut zeroes, mut growths, mut alignments] =
        std::array::from_fn(|_| Sums::default());
    for round in 0..60 {
        let (size, is_held) = (10 + round * 43, round % 3 == 0);
        by_vector(size, is_held, &mut vectors);
        by_zeroes(size, is_held, &mut zeroes);
        by_growth(size, is_held, &mut growths);
        by_alignment(is_held, &mut alignments);
    }

    let rows = [
        ("by_vector", vectors),
        ("by_zeroes", zeroes),
        ("by_growth", growths),
        ("by_alignment", alignments),
    ];
    let mut comma = "{\"functions\":[";
    for (name, of) in &rows {
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
    writeln!(output, "{line}]}}")?;
    line.clear();
    input.read_line(&mut line)?;
    Ok(())
}
