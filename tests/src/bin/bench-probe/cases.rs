//! The cases of the measurement, their setups, and their goals.

use super::target::Block;

/// What is attached while the target runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// No probe.
    Nothing,
    /// An empty session program on malloc that skips the return, where samplerd's program attaches.
    EmptySession,
    /// samplerd's program on malloc; nothing is sampled.
    OurMalloc,
    /// An empty program on free, where samplerd's program attaches.
    EmptyFree,
    /// samplerd's program on free with 1,000 live samples, none of which is freed.
    OurFreeFew,
    /// samplerd's program on free with 100,000 live samples, none of which is freed.
    OurFreeMany,
    /// samplerd's programs on both at the default interval: samples are taken, with their stacks.
    OurPair,
    /// Empty programs where memleak attaches: malloc's entry and return, free's first instruction.
    EmptyMemleak,
    /// Programs at memleak's instructions that do what memleak's do.
    Memleak,
}

impl Setup {
    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Setup::Nothing => "no probe",
            Setup::EmptySession => "empty session program",
            Setup::EmptyFree => "empty program",
            Setup::OurMalloc | Setup::OurFreeFew | Setup::OurFreeMany => "ours",
            Setup::OurPair => "ours, interval 512 KiB",
            Setup::EmptyMemleak => "memleak's probes, empty programs",
            Setup::Memleak => "memleak's probes, its map work",
        }
    }

    /// Calls in a block. The block is smaller if an instruction is single-stepped, which takes many
    /// microseconds.
    pub(crate) fn calls(self) -> u32 {
        match self {
            Setup::EmptyMemleak | Setup::Memleak => 100,
            _ => 1000,
        }
    }
}

/// A ratio of costs and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison {
    /// The setup whose cost is divided …
    pub(crate) above: Setup,
    /// … by this setup's cost.
    pub(crate) below: Setup,
    /// The goal of the ratio.
    pub(crate) goal: Goal,
}

/// The bound of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// At most this ratio.
    AtMost(f64),
    /// At least this ratio.
    AtLeast(f64),
    /// No bound: the ratio is only reported.
    Open,
}

impl Goal {
    /// Whether `ratio` reaches the goal; `None` without a bound.
    pub(crate) fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Goal::AtMost(bound) => Some(ratio <= bound),
            Goal::AtLeast(bound) => Some(ratio >= bound),
            Goal::Open => None,
        }
    }
}

/// One case of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Name of the case.
    pub(crate) name: &'static str,
    /// Work of the target.
    pub(crate) block: Block,
    /// The setups; the first has no probe.
    pub(crate) setups: &'static [Setup],
    /// The comparisons of setups.
    pub(crate) comparisons: &'static [Comparison],
}

const fn free(name: &'static str, block: Block, case: &'static FreeCase) -> Case {
    Case { name, block, setups: &case.0, comparisons: &case.1 }
}

type FreeCase = ([Setup; 3], [Comparison; 1]);

const FEW_LIVE_SAMPLES: FreeCase = (
    [Setup::Nothing, Setup::EmptyFree, Setup::OurFreeFew],
    [Comparison { above: Setup::OurFreeFew, below: Setup::EmptyFree, goal: Goal::AtMost(1.06) }],
);
const MANY_LIVE_SAMPLES: FreeCase = (
    [Setup::Nothing, Setup::EmptyFree, Setup::OurFreeMany],
    [Comparison { above: Setup::OurFreeMany, below: Setup::EmptyFree, goal: Goal::AtMost(1.15) }],
);

/// All cases.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "unsampled malloc",
        block: Block::Pairs,
        setups: &[Setup::Nothing, Setup::EmptySession, Setup::OurMalloc],
        comparisons: &[Comparison {
            above: Setup::OurMalloc,
            below: Setup::EmptySession,
            goal: Goal::AtMost(1.05),
        }],
    },
    free("unsampled free, 1,000 live samples, recent blocks", Block::Pairs, &FEW_LIVE_SAMPLES),
    free("unsampled free, 1,000 live samples, random blocks", Block::Scattered, &FEW_LIVE_SAMPLES),
    free("unsampled free, 100,000 live samples, recent blocks", Block::Pairs, &MANY_LIVE_SAMPLES),
    free(
        "unsampled free, 100,000 live samples, random blocks",
        Block::Scattered,
        &MANY_LIVE_SAMPLES,
    ),
    Case {
        name: "pair of malloc and free",
        block: Block::Pairs,
        setups: &[Setup::Nothing, Setup::OurPair, Setup::EmptyMemleak, Setup::Memleak],
        comparisons: &[
            Comparison {
                above: Setup::EmptyMemleak,
                below: Setup::OurPair,
                goal: Goal::AtLeast(6.0),
            },
            Comparison { above: Setup::Memleak, below: Setup::OurPair, goal: Goal::Open },
        ],
    },
];
