//! Lifetimes: from the store's life tables to rows with names.

use super::names::Names;
use super::profile::{Located, located};
use super::raw::RawFrame;
use crate::pipeline::worker::Worker;
use crate::store::lifetimes::BUCKET_WIDTH;
use crate::store::{Life, ProcessId, Selector, StackId};
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Confidence, Estimator};
use sampler_common::lifetimes::{Lifetime, Lifetimes, Stack};
use sampler_common::note::{Loss, Note};

/// A request for lifetimes.
#[derive(Clone, Debug)]
pub struct LifetimesRequest {
    /// Which processes.
    pub selector: Selector,
    /// Confidence of every interval.
    pub confidence: Confidence,
    /// Number of stacks with most bytes × seconds; 0 is all.
    pub top: usize,
}

/// Lifetimes without names.
#[derive(Clone, Debug)]
pub struct RawLifetimes {
    /// The request.
    pub request: LifetimesRequest,
    /// Time of the answer, nanoseconds since the Unix epoch.
    pub time_unix_ns: u64,
    /// All stacks together.
    pub total: Life,
    /// Rows by falling bytes × seconds: pid, frames (leaf first), the fate of the blocks.
    pub rows: Vec<(u32, Vec<u32>, Life)>,
    /// Number of rows before the cut to the top ones.
    pub rows_total: usize,
    /// Frames.
    pub frames: Vec<RawFrame>,
    /// Limits of what the numbers mean.
    pub notes: Vec<Note>,
}

impl Worker {
    pub(super) fn lifetimes(&self, request: LifetimesRequest) -> Result<RawLifetimes, String> {
        self.config.capabilities().frees("lifetimes")?;
        let chosen = self.ingest.chosen(&request.selector)?;
        // Points of a stride have no variance.
        self.ingest.strategies(&chosen, Some(Estimator::Weighted))?;
        let clocks = self.clock.now();
        let is_requested = |process: ProcessId| chosen.contains(&process);
        let lives = self.ingest.lifetimes.by_stack(&self.ingest.live, clocks.now_ns, is_requested);
        let mut total = Life::default();
        lives.values().for_each(|life| total.add(life));
        let unseen = self.ingest.lifetimes.unseen_of(is_requested);
        let notes = Note::counted(unseen, Loss::FreedUntimed).into_iter().collect();
        let mut raw = RawLifetimes {
            time_unix_ns: clocks.to_unix(clocks.now_ns),
            total,
            rows: Vec::new(),
            rows_total: lives.len(),
            frames: Vec::new(),
            notes,
            request,
        };
        self.add_lives(&mut raw, lives);
        Ok(raw)
    }

    fn add_lives(&self, raw: &mut RawLifetimes, lives: FxHashMap<(ProcessId, StackId), Life>) {
        let mut rows: Vec<_> = lives.into_iter().collect();
        let sum = |life: &Life| life.byte_seconds.sum;
        rows.sort_by(|(a, x), (b, y)| sum(y).total_cmp(&sum(x)).then_with(|| a.cmp(b)));
        let top = if raw.request.top > 0 { raw.request.top } else { rows.len() };
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        for ((process, stack), life) in rows.into_iter().take(top) {
            let frames = self.ingest.stacks.get(stack).iter().map(|number| {
                *numbers.entry(*number).or_insert_with(|| {
                    raw.frames.push(self.raw_frame(*number));
                    raw.frames.len() as u32 - 1
                })
            });
            let frames = frames.collect();
            raw.rows.push((self.ingest.processes.get(process).pid, frames, life));
        }
    }
}

/// The lifetimes with names.
pub async fn assemble_lifetimes(mut raw: RawLifetimes, names: &Names) -> Lifetimes {
    let Located { locations, notes, .. } = located(&raw.frames, names).await;
    raw.notes.extend(notes);
    let confidence = raw.request.confidence;
    let lifetime = |life: Life| {
        let counts = (life.freed, life.held);
        Lifetime::new(life.steps, &life.byte_seconds, counts, BUCKET_WIDTH, confidence)
    };
    let stacks = raw.rows.into_iter().map(|(pid, frames, life)| {
        let lines =
            frames.iter().rev().flat_map(|frame| locations[*frame as usize].lines.iter().rev());
        Stack {
            pid,
            frames: lines.map(|line| line.function.clone()).collect(),
            lifetime: lifetime(life),
        }
    });
    Lifetimes {
        confidence,
        time_unix_ns: raw.time_unix_ns,
        stacks: stacks.collect(),
        stacks_total: raw.rows_total as u64,
        total: lifetime(raw.total),
        notes: raw.notes,
    }
}
