//! What grows in [`crate::growth`], and the programs for it.

use anyhow::Result;
use sampler_tests::build;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Threads that allocate.
    Threads,
    /// Processes that allocate, all profiled.
    Processes,
    /// Sampled blocks that are held.
    Live,
    /// Different stacks.
    Stacks,
    /// Frames of every stack.
    Depth,
}

impl Kind {
    /// All, in the order of the tables.
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Threads, Kind::Processes, Kind::Live, Kind::Stacks, Kind::Depth];

    /// In tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Threads => "threads",
            Kind::Processes => "processes",
            Kind::Live => "live samples",
            Kind::Stacks => "distinct stacks",
            Kind::Depth => "stack depth",
        }
    }

    /// The points. The others are compared with the first.
    pub(crate) fn points(self) -> &'static [u32] {
        match self {
            Kind::Threads => &[1, 2, 4, 16],
            // Up to four processes have links of their own.
            Kind::Processes => &[1, 2, 4, 5, 16],
            Kind::Live => &[100, 1_000, 10_000, 100_000],
            Kind::Stacks => &[1, 100, 1_000, 10_000, 100_000],
            Kind::Depth => &[1, 10, 30, 100, 300, 1_000],
        }
    }

    /// Options of samplerd. Kinds whose cost is that of samples take many samples.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Kind::Threads | Kind::Processes => &[],
            // This interval holds until the blocks are held: each block is sampled.
            Kind::Live => &["--interval", "1", "--max-live", "200000"],
            Kind::Stacks | Kind::Depth => &["--interval", "8KiB"],
        }
    }

    /// How many processes are started, and the command of each.
    ///
    /// # Errors
    /// If the program does not compile.
    pub(crate) fn command(self, point: u32) -> Result<(u32, Vec<String>)> {
        let compiled = |source: &str| {
            Ok::<_, anyhow::Error>(build::compile_bench(source)?.display().to_string())
        };
        let number = point.to_string();
        Ok(match self {
            Kind::Threads => (1, vec![compiled("pairs.c")?, number]),
            Kind::Processes => (point, vec![compiled("pairs.c")?, "1".to_owned()]),
            Kind::Live => (1, vec![compiled("growth.c")?, "live".to_owned(), number]),
            Kind::Stacks => (1, vec![compiled("growth.c")?, "stacks".to_owned(), number]),
            Kind::Depth => (1, vec![compiled("growth.c")?, "depth".to_owned(), number]),
        })
    }
}
