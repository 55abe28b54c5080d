//! Programs that change phase when the rate changes.

use crate::common::SplitMix;
use crate::simulation::draw;
use sampler_common::estimate::{Epoch, Reference, Row, Sample, Stratum, Unseen};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::{ClassUse, Design, Strategy, adapt, class};
use std::collections::BTreeMap;

/// Blocks of a size that a stack allocates in one phase. The stack keeps every second block.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    pub(crate) size: u64,
    pub(crate) phase: usize,
    pub(crate) count: u64,
}

/// Mean bytes between samples in each phase.
pub(crate) const SHORT_LONG: [u64; 2] = [64 << 10, 16 << 20];
const THREE: [u64; 3] = [256 << 10, 16 << 20, 64 << 10];

pub(crate) struct Program {
    pub(crate) designs: Vec<[Design; CLASSES]>,
    pub(crate) stacks: Vec<Vec<Blocks>>,
    /// Whether held samples are thinned to the rates of the last phase.
    pub(crate) thinned: bool,
}

fn stratum(size: u64) -> Stratum {
    Stratum { process: 0, class: class(size) as u8 }
}

impl Program {
    fn epochs(&self) -> BTreeMap<Stratum, Vec<Epoch>> {
        let mut epochs: BTreeMap<Stratum, Vec<Epoch>> = BTreeMap::new();
        for blocks in self.stacks.iter().flatten() {
            let class = class(blocks.size);
            let all = epochs.entry(stratum(blocks.size)).or_insert_with(|| {
                let unseen = |design: &[Design; CLASSES]| design[class].unseen(class).into();
                let last = unseen(&self.designs[self.designs.len() - 1]);
                let epoch = |design| {
                    let alloc: Unseen = unseen(design);
                    let inuse = if self.thinned { alloc.max(last) } else { alloc };
                    Epoch { alloc, inuse, ..Epoch::default() }
                };
                self.designs.iter().map(epoch).collect()
            });
            all[blocks.phase].bytes += blocks.size * blocks.count;
            all[blocks.phase].objects += blocks.count;
        }
        epochs
    }

    /// The reference before any sample.
    pub(crate) fn reference(&self) -> Reference {
        let intervals = self.designs.iter().flatten().map(|design| design.interval());
        let mut reference =
            Reference { interval_bytes: intervals.fold(1.0, f64::max), ..Reference::default() };
        reference.epochs = self.epochs();
        for (stratum, epochs) in &reference.epochs {
            let totals = reference.strata.entry(*stratum).or_default();
            let mut exact = (0, 0);
            for epoch in epochs {
                exact = (exact.0 + epoch.bytes, exact.1 + epoch.objects);
                totals.unseen_objects = totals.unseen_objects.max(epoch.inuse.objects);
                totals.unseen_bytes = totals.unseen_bytes.max(epoch.inuse.bytes);
            }
            totals.exact = Some(exact);
        }
        reference
    }

    pub(crate) fn run(&self, empty: &Reference, random: &mut SplitMix) -> (Vec<Row>, Reference) {
        let (mut rows, mut reference) = (Vec::new(), empty.clone());
        for stack in &self.stacks {
            let mut row = Row::default();
            for blocks in stack {
                let design = self.designs[blocks.phase][class(blocks.size)];
                let of = stratum(blocks.size);
                let held = blocks.count / 2;
                draw::sample(design, blocks.size, blocks.count - held, random, |sample| {
                    row.stratum(of).add_allocation(&sample);
                });
                let (mut taken, kept) = (Vec::new(), self.keep(blocks));
                draw::sample(design, blocks.size, held, random, |sample| taken.push(sample));
                for sample in taken {
                    row.stratum(of).add_allocation(&sample);
                    if random.uniform() <= kept {
                        row.stratum(of).add_live(&Sample { kept, ..sample });
                    }
                }
            }
            reference.add(&row);
            rows.push(row);
        }
        (rows, reference)
    }

    /// The probability that thinning keeps a held sample.
    fn keep(&self, blocks: &Blocks) -> f64 {
        let last = &self.designs[self.designs.len() - 1];
        let inclusion =
            |of: &[Design; CLASSES]| of[class(blocks.size)].inclusion(blocks.size).unwrap_or(1.0);
        let after = inclusion(last) / inclusion(&self.designs[blocks.phase]);
        if self.thinned { after.min(1.0) } else { 1.0 }
    }

    /// True bytes and objects of some stacks: allocated, and held.
    pub(crate) fn truth(&self, stacks: &[usize]) -> [f64; 4] {
        let mut truth = [0.0; 4];
        for blocks in stacks.iter().flat_map(|stack| &self.stacks[*stack]) {
            let (size, held) = (blocks.size as f64, (blocks.count / 2) as f64);
            let of = [blocks.count as f64 * size, blocks.count as f64, held * size, held];
            truth.iter_mut().zip(of).for_each(|(sum, of)| *sum += of);
        }
        truth
    }
}

/// Sizes with their shares of the bytes.
const MIXES: [(&str, &[(u64, f64)]); 3] = [
    ("small", &[(48, 0.3), (64, 0.3), (100, 0.4)]),
    ("mixed", &[(16, 0.2), (256, 0.2), (4 << 10, 0.2), (64 << 10, 0.2), (1 << 20, 0.2)]),
    ("large", &[(64 << 10, 0.5), (2 << 20, 0.5)]),
];

/// Blocks of a mix with `bytes` in a phase.
fn blocks(mix: &[(u64, f64)], phase: usize, bytes: f64) -> impl Iterator<Item = Blocks> {
    mix.iter().map(move |(size, share)| Blocks {
        size: *size,
        phase,
        count: (bytes * share / *size as f64).round() as u64,
    })
}

/// Stacks of every kind: only in one phase, or in both in several proportions. The last is the rest
/// of the program.
fn stacks(mix: &[(u64, f64)], intervals: &[u64], others: [f64; 2]) -> Vec<Vec<Blocks>> {
    let long = intervals.iter().position(|of| *of == SHORT_LONG[1]).expect("a long phase");
    let short = intervals.iter().position(|of| *of == SHORT_LONG[0]).expect("a short phase");
    let bytes = |phase: usize, expected: f64| expected * intervals[phase] as f64;
    let expected = [
        (0.0, 0.5),
        (0.0, 2.0),
        (0.0, 5.0),
        (0.0, 20.0), // only in the long phase
        (5.0, 0.0),
        (100.0, 0.0), // only in the short phase
        (1.0, 1.0),
        (30.0, 0.5),
        (30.0, 2.0),
        (300.0, 1.0),
        (300.0, 3.0),
        (300.0, 10.0),
        (others[0], others[1]),
    ];
    let stack = |(of_short, of_long): (f64, f64)| {
        let both = blocks(mix, short, bytes(short, of_short));
        both.chain(blocks(mix, long, bytes(long, of_long)))
            .chain(
                (long == 1 && intervals.len() == 3)
                    .then(|| blocks(mix, 0, of_short * 65536.0))
                    .into_iter()
                    .flatten(),
            )
            .filter(|blocks| blocks.count > 0)
            .collect()
    };
    expected.into_iter().map(stack).collect()
}

fn designs(strategy: Strategy, mix: &[(u64, f64)], intervals: &[u64]) -> Vec<[Design; CLASSES]> {
    let objects: f64 = mix.iter().map(|(size, share)| share / *size as f64).sum();
    let of = |interval: &u64| {
        if strategy == Strategy::Adaptive {
            let mut uses = [ClassUse::default(); CLASSES];
            for (size, share) in mix {
                let of = &mut uses[class(*size)];
                of.objects += share / *size as f64 * 1e9;
                of.bytes += share * 1e9;
                of.live_objects += share / *size as f64 * 5e8;
            }
            return adapt(&uses, *interval as f64);
        }
        [Design::from_interval(strategy, *interval, 1.0 / objects).expect("in the domain"); CLASSES]
    };
    intervals.iter().map(of).collect()
}

/// Programs for a strategy, with their names.
pub(crate) fn programs(strategy: Strategy) -> Vec<(String, Program)> {
    let mut programs = Vec::new();
    for (name, mix) in MIXES {
        for (intervals, thinned, others) in [
            (&SHORT_LONG[..], false, [1000.0, 50.0]),
            (&SHORT_LONG[..], true, [1000.0, 50.0]),
            // Hardly anything is allocated in the phase of the large interval.
            (&SHORT_LONG[..], false, [1000.0, 0.2]),
            (&THREE[..], false, [1000.0, 50.0]),
        ] {
            let stacks = stacks(mix, intervals, others);
            let designs = designs(strategy, mix, intervals);
            let name = format!("{name}, {intervals:?}, thinned {thinned}, others {others:?}");
            programs.push((name, Program { designs, stacks, thinned }));
        }
    }
    programs
}
