//! Growth: from the live set and ended blocks to ranked stacks with names.

use super::history::joined;
use super::names::Names;
use super::profile::{Located, located};
use super::raw::RawFrame;
use super::scope::Scope;
use crate::pipeline::clock::Clocks;
use crate::pipeline::records::ingest::Ingest;
use crate::pipeline::worker::Worker;
use crate::store::windows::{Departure, Window};
use crate::store::{ProcessId, Selector, StackId};
use rustc_hash::{FxHashMap, FxHashSet};
use sampler_common::estimate::{Confidence, Estimator, Reference, Row};
use sampler_common::leaks::{Blocks, Freed, Leak, Leaks, Ranking, Times};
use sampler_common::note::{Growth, Note};
use sampler_common::profile::{Kind, Line, Location};
use sampler_common::units::utc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A process that is attached within this time after its start has hardly any earlier block.
const BORN: Duration = Duration::from_millis(100);

/// Number of times before the end in the history of a stack.
const HISTORY_TIMES: usize = 24;

/// A request for growth.
#[derive(Clone, Debug)]
pub struct LeaksRequest {
    /// Which processes.
    pub selector: Selector,
    /// The last so many nanoseconds; `None`: half of the time since the attach.
    pub over_ns: Option<u64>,
    /// Confidence of every interval, and of the bounds of all stacks together.
    pub confidence: Confidence,
    /// Number of top stacks; 0 is all.
    pub top: usize,
}

/// Growth without bounds and names.
#[derive(Clone, Debug)]
pub struct RawLeaks {
    /// The request.
    pub request: LeaksRequest,
    /// Start and end, nanoseconds since the Unix epoch.
    pub span_unix_ns: [u64; 2],
    /// Pid and frames (leaf first) of each stack of which a sample arrived or departed.
    pub stacks: Vec<(u32, Vec<u32>)>,
    /// The blocks of each stack.
    pub blocks: Vec<Blocks>,
    /// Blocks of all other stacks.
    pub others: Blocks,
    /// The reference of estimates of held memory.
    pub reference: Reference,
    /// The times of the history.
    pub times: Times,
    /// Frames.
    pub frames: Vec<RawFrame>,
    /// Limits of what the numbers mean.
    pub notes: Vec<Note>,
}

type ByStack = FxHashMap<(ProcessId, StackId), Blocks>;
type Rows = FxHashMap<(ProcessId, StackId), Row>;

impl Worker {
    pub(super) fn leaks(&self, request: LeaksRequest) -> Result<RawLeaks, String> {
        self.config.capabilities().frees("leaks")?;
        let mut chosen = self.ingest.chosen(&request.selector)?;
        if !chosen.is_empty() {
            chosen.retain(|id| self.ingest.processes.get(*id).exited.is_none());
            if chosen.is_empty() && !request.selector.is_all() {
                return Err(format!(
                    "{}: has exited, and holds nothing that could grow (see: sampler ps)",
                    request.selector
                ));
            }
        }
        // Points of a stride have no variance.
        self.ingest.strategies(&chosen, Some(Estimator::Weighted))?;
        let clocks = self.clock.now();
        let over_ns = request.over_ns.unwrap_or_else(|| self.ingest.duration_ns(&chosen) / 2);
        let mut since_ns = clocks.now_ns.saturating_sub(over_ns);
        let (window, stacks, others) = loop {
            match self.ingest.blocks_since(since_ns, clocks, &chosen) {
                Ok(found) => break found,
                // Without a requested time, the longest known time is used.
                Err(since) if request.over_ns.is_none() && since > since_ns => since_ns = since,
                Err(since) => {
                    return Err(format!(
                        "what went is known since {} (ask over a shorter time)",
                        utc(clocks.to_unix(since))
                    ));
                }
            }
        };
        let mut notes = self.leak_notes(&chosen, window[0], clocks);
        if over_ns > window[1] - window[0] + Duration::from_secs(1).as_nanos() as u64 {
            notes.insert(0, Note::Growth(Growth::DaemonTime));
        }
        let held = self.gather_now(chosen, Kind::Live, &Scope::ALL, None);
        let mut raw = RawLeaks {
            span_unix_ns: window.map(|at| clocks.to_unix(at)),
            stacks: Vec::new(),
            blocks: Vec::new(),
            others,
            reference: held.reference,
            times: self.ingest.times(window, clocks),
            frames: Vec::new(),
            notes,
            request,
        };
        self.add_blocks(&mut raw, stacks, held.rows);
        Ok(raw)
    }

    fn add_blocks(&self, raw: &mut RawLeaks, stacks: ByStack, mut rows: Rows) {
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        // Sorted, so that equal requests get equal answers.
        stacks.sort_by_key(|(key, _)| *key);
        let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
        for ((process, stack), mut blocks) in stacks {
            blocks.row = rows.remove(&(process, stack)).unwrap_or_default();
            if blocks.arrived.samples + blocks.departed.samples == 0 {
                raw.others.add(&blocks);
                continue;
            }
            let frames = self.ingest.stacks.get(stack).iter().map(|number| {
                *numbers.entry(*number).or_insert_with(|| {
                    raw.frames.push(self.raw_frame(*number));
                    raw.frames.len() as u32 - 1
                })
            });
            let frames = frames.collect();
            raw.stacks.push((self.ingest.processes.get(process).pid, frames));
            raw.blocks.push(blocks);
        }
    }

    /// Notes on what may be mistaken for growth, and on growth that may be hidden.
    fn leak_notes(&self, chosen: &[ProcessId], start_ns: u64, clocks: Clocks) -> Vec<Note> {
        let mut notes = Vec::new();
        let ran_before = chosen.iter().map(|id| self.ingest.processes.get(*id)).filter(|record| {
            record.origin.started.is_none_or(|started| started + BORN < record.attached)
        });
        let attached = ran_before.map(|record| clocks.at_unix(unix_ns(record.attached))).max();
        // An attach takes a moment, and time slots begin earlier.
        let seen_ns = attached.map(|attached| start_ns.saturating_sub(attached));
        notes.extend(seen_ns.map(|seen_ns| match seen_ns < 1_000_000_000 {
            true => Growth::FromAttach,
            false => Growth::AfterAttach(seen_ns),
        }));
        let unseen = self.ingest.lifetimes.unseen_of(|process| chosen.contains(&process));
        notes.extend((unseen > 0).then_some(Growth::FreedUnseen(unseen)));
        let full = self.balance.live_incomplete.map(|since| Growth::LiveFull(unix_ns(since)));
        let notes = notes.into_iter().map(Note::Growth).chain(self.raised(chosen));
        notes.chain(full.map(Note::Growth)).collect()
    }
}

impl Ingest {
    /// The blocks since a border at or before `since_ns`, and the time of the border: of each stack
    /// that holds something or held something at the border, and of all other stacks.
    ///
    /// # Errors
    /// The earliest time since which ended blocks are known, if it is later than `since_ns`.
    fn blocks_since(
        &self,
        since_ns: u64,
        clocks: Clocks,
        chosen: &[ProcessId],
    ) -> Result<([u64; 2], ByStack, Blocks), u64> {
        let now_ns = clocks.now_ns;
        let window = self.windows.between(since_ns, now_ns, now_ns);
        let window = window.map_err(|error| error.oldest_ns)?;
        let departed = window.departed().map_err(|cut| cut.whole_since_ns)?;
        // Rows and departures are many, and so may be processes.
        let chosen: FxHashSet<ProcessId> = chosen.iter().copied().collect();
        let departed: Vec<Departure> = departed.filter(|of| chosen.contains(&of.process)).collect();
        let (mut stacks, mut others) = (ByStack::default(), Blocks::default());
        for of in departed.iter().filter(|of| of.allocated_ns < window.start_ns) {
            stacks.entry((of.process, of.stack)).or_default().departed.add(&of.blocks);
        }
        self.add_live(&mut stacks, &window, now_ns, &chosen);
        for of in departed {
            let [allocated_age_ns, freed_age_ns] =
                [of.allocated_ns, of.freed_ns].map(|at_ns| now_ns.saturating_sub(at_ns));
            let stack = stacks.get_mut(&(of.process, of.stack)).unwrap_or(&mut others);
            stack.freed.push(Freed { allocated_age_ns, freed_age_ns, blocks: of.blocks });
        }
        for (key, row) in window.rows().filter(|(key, _)| chosen.contains(&key.process)) {
            let stack = stacks.get_mut(&(key.process, key.stack)).unwrap_or(&mut others);
            stack.allocated.add(&row.weights());
        }
        Ok(([window.start_ns, now_ns], stacks, others))
    }

    /// The times of a history: borders of time slots, the first of which is the window's start.
    fn times(&self, [start_ns, now_ns]: [u64; 2], clocks: Clocks) -> Times {
        let slots = joined(&self.windows.borders(start_ns, now_ns), HISTORY_TIMES);
        let ages = slots.iter().map(|[start_ns, _]| now_ns.saturating_sub(*start_ns));
        Times { ages_ns: ages.collect(), end_unix_ns: clocks.to_unix(now_ns) }
    }

    fn add_live(
        &self,
        stacks: &mut ByStack,
        window: &Window,
        now_ns: u64,
        chosen: &FxHashSet<ProcessId>,
    ) {
        let held = self.live.iter().map(|(_, live)| live);
        for live in held.filter(|live| chosen.contains(&live.process)) {
            let blocks = stacks.entry((live.process, live.stack)).or_default();
            if live.time_ns >= window.start_ns {
                blocks.arrived.add_sample(&live.sample);
            }
            let age_ns = now_ns.saturating_sub(live.time_ns);
            blocks.ages.push((age_ns, live.sample.bytes()));
        }
    }
}

pub(in crate::pipeline) fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The ranked growth with names.
///
/// # Errors
/// One line, if the daemon is shutting down.
pub async fn assemble_leaks(mut raw: RawLeaks, names: &Names) -> Result<Leaks, String> {
    let LeaksRequest { confidence, top, .. } = raw.request;
    let (blocks, others) = (std::mem::take(&mut raw.blocks), std::mem::take(&mut raw.others));
    let (reference, times) = (std::mem::take(&mut raw.reference), std::mem::take(&mut raw.times));
    let rank = move || Ranking::new(blocks, &others, &reference, &times, confidence, top);
    let ranking = tokio::task::spawn_blocking(rank);
    let ranking = ranking.await.map_err(|_| "the daemon is shutting down")?;
    // Only shown stacks get names.
    let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
    let mut frames = Vec::new();
    for (index, _) in &ranking.ranked {
        for frame in &raw.stacks[*index].1 {
            numbers.entry(*frame).or_insert_with(|| {
                frames.push(raw.frames[*frame as usize].clone());
                frames.len() - 1
            });
        }
    }
    let Located { locations, notes, .. } = located(&frames, names).await;
    raw.notes.extend(notes);
    let lines = |frames: &[u32]| -> Vec<Line> {
        let located = frames.iter().rev().map(|frame| &locations[numbers[frame]]);
        located.flat_map(|Location { lines, .. }| lines.iter().rev().cloned()).collect()
    };
    let stacks = ranking.ranked.iter().map(|(index, grown)| {
        let (pid, frames) = &raw.stacks[*index];
        Leak { pid: *pid, frames: lines(frames), grown: grown.clone() }
    });
    Ok(Leaks {
        confidence,
        start_unix_ns: raw.span_unix_ns[0],
        end_unix_ns: raw.span_unix_ns[1],
        total: ranking.total,
        growing: ranking.growing,
        unseen: ranking.unseen,
        max_other_growth: ranking.max_other_growth,
        stacks: stacks.collect(),
        stacks_total: raw.stacks.len() as u64,
        notes: raw.notes,
    })
}
