//! Times of queries with many stacks, and of the first query after a start.

use crate::program::{Load, Program};
use anyhow::Result;
use sampler_tests::Daemon;
use sampler_tests::spread::Spread;
use std::time::Instant;

/// Repetitions of each query.
const TIMES: usize = 9;
/// Samples of each stack on average. Nearly all stacks then occur.
const EACH: u32 = 6;
/// Samples a second.
const RATE: u32 = 20_000;

/// A query.
pub(crate) struct Question {
    /// Arguments of the client.
    pub(crate) arguments: &'static str,
    /// Milliseconds, including the client's start and end.
    pub(crate) ms: Spread,
}

/// Measurements of all queries.
pub(crate) struct Queries {
    /// Number of distinct stacks.
    pub(crate) stacks: u64,
    /// Milliseconds from the daemon's start to the end of the first `sampler profile`.
    pub(crate) first_profile_ms: Spread,
    /// The queries.
    pub(crate) questions: Vec<Question>,
}

impl Question {
    /// Whether the query has a goal for its time: queries for the top stacks have.
    pub(crate) fn has_goal(&self) -> bool {
        self.arguments.contains("--top")
    }
}

const QUESTIONS: [&str; 4] = [
    "profile --format json --top 20",
    "profile",
    "profile --kind live",
    "profile --format pprof -o /dev/null",
];

pub(crate) fn measure(stacks: u32) -> Result<Queries> {
    let load =
        Load { rate: RATE, depth: 20, frame_bytes: 64, stacks, seconds: stacks * EACH / RATE };
    let mut program = Program::start(load)?;
    let mut first = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let daemon = Daemon::start(&[program.pid()], &[])?;
        daemon.profile("alloc", &[])?;
        first.push(start.elapsed().as_secs_f64() * 1e3);
        daemon.stop()?;
    }
    let arguments = ["--interval", "1", "--max-samples-per-second", "unlimited", "--ring", "64MiB"];
    let daemon = Daemon::start(&[program.pid()], &arguments)?;
    program.go()?;
    program.made()?;
    let mut questions = Vec::new();
    for question in QUESTIONS {
        let arguments: Vec<&str> = question.split(' ').collect();
        // Names are symbolized once, before the measurement.
        daemon.sampler(&arguments)?.success(question)?;
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let start = Instant::now();
            daemon.sampler(&arguments)?.success(question)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        questions.push(Question { arguments: question, ms: Spread::of(times) });
    }
    let stacks = daemon.status()?["tables"]["stacks"]["used"].as_u64().unwrap_or_default();
    daemon.stop()?;
    Ok(Queries { stacks, first_profile_ms: Spread::of(first), questions })
}
