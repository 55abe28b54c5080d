//! Gives names to a raw profile, and intervals to its moments.

use super::names::{Named, Names};
use super::notes::rss;
use super::notes::unexplained;
use super::notes::unnamed_code;
use super::order::ordered;
use super::raw::{RawFrame, RawProfile};
use super::summed;
use crate::unwind::GeneratedCode;
use rustc_hash::FxHashMap;
use sampler_common::estimate::{Estimator, Row, everything, unsampled};
use sampler_common::note::{Loss, Note};
use sampler_common::profile::{Line, Location, Lost, Mapping, Profile, Quantities, Stack};
use sampler_common::units;
use std::ops::Range;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// The profile with names and intervals.
pub async fn assemble(mut raw: RawProfile, names: &Names) -> Profile {
    let (functions, top) = (raw.request.functions, raw.request.top);
    if functions > 0 {
        raw.request.top = 0;
    }
    let unsampled = unsampled(&raw.reference, raw.estimator);
    let rows_total = ordered(&mut raw, &unsampled);
    let mut located = located(&raw.frames, names).await;
    let main = raw.rows.iter().find_map(|row| raw.process_names.get(&row.pid));
    if let Some(main) = main {
        located.bring_first(&main.exe);
    }
    let Located { mappings, locations, notes: of_names } = located;
    let quantities = |row: &Row| -> Quantities {
        Quantities::of_row(row, &raw.reference, raw.estimator, raw.request.confidence)
    };
    let samples = raw.totals.total().alloc_objects.samples;
    let totals = everything(&raw.reference, raw.estimator);
    let lost = raw.lost.iter().map(|(outcome, samples, row)| {
        let known = row.as_ref().map(quantities);
        Lost {
            outcome: outcome.name().to_owned(),
            samples: *samples,
            alloc_space: known.map(|known| known.alloc_space),
            alloc_objects: known.map(|known| known.alloc_objects),
        }
    });
    let (totals, lost) = (quantities(&totals), lost.collect());
    let mut notes = raw.notes;
    notes.extend(of_names);
    notes.extend(rss::note(raw.running, totals.inuse_space.estimate).await);
    let unexplained = tokio::task::spawn_blocking(move || unexplained::note(&raw.compared)).await;
    notes.extend(unexplained.ok().flatten());
    let cost = tokio::task::spawn_blocking(|| raw.cost.read()).await.ok();
    let only_sums = functions > 0 && raw.estimator == Estimator::Weighted;
    let of_stack = |row: &Row| match only_sums {
        true => summed::sums(row, raw.request.confidence),
        false => quantities(row),
    };
    let stacks = raw.rows.into_iter().map(|row| Stack {
        pid: row.pid,
        locations: row.frames,
        quantities: of_stack(&row.row),
        row: row.row,
    });
    let mut profile = Profile {
        kind: raw.request.kind,
        confidence: raw.request.confidence,
        time_unix_ns: raw.time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
        duration_ns: raw.duration_ns,
        window: raw.window,
        interval_bytes: units::whole_interval(raw.interval_bytes),
        estimator: raw.estimator,
        strategies: raw.strategies,
        sources: raw.sources,
        pids: raw.pids,
        process_names: raw.process_names,
        totals,
        exact: raw.exact,
        samples,
        lost,
        mappings,
        locations,
        stacks: stacks.collect(),
        stacks_total: rows_total as u64,
        functions: None,
        notes,
        reference: raw.reference,
        cost,
    };
    if functions > 0 {
        summed::keep(&mut profile, functions, top);
    }
    profile
}

/// Frames with names.
pub(super) struct Located {
    mappings: Vec<Mapping>,
    /// One location for each frame.
    pub(super) locations: Vec<Location>,
    /// What could not be read, and what is on its way.
    pub(super) notes: Vec<Note>,
}

impl Located {
    /// Moves the first mapping of a file before all others: tools take the first mapping for the
    /// program.
    fn bring_first(&mut self, path: &str) {
        let Some(at) = self.mappings.iter().position(|of| of.path == path) else { return };
        self.mappings.swap(0, at);
        for location in &mut self.locations {
            location.mapping = match location.mapping as usize {
                0 => at as u32,
                of if of == at => 0,
                _ => location.mapping,
            };
        }
    }
}

/// One named location for each frame.
pub async fn locations(frames: &[RawFrame], names: &Names) -> Vec<Location> {
    named(frames, names).await.0.locations
}

/// Gives names to frames.
pub(super) async fn located(frames: &[RawFrame], names: &Names) -> Located {
    let (mut located, unnamed) = named(frames, names).await;
    located.notes.extend(unnamed_code::notes(unnamed).await);
    located
}

/// Gives names to frames, and returns the generated code of which a frame has none.
async fn named(frames: &[RawFrame], names: &Names) -> (Located, Vec<Arc<GeneratedCode>>) {
    let code = frames
        .iter()
        .filter_map(|frame| match frame {
            RawFrame::Code(module, offset, _) => Some((module.clone(), *offset)),
            RawFrame::Note(_) => None,
        })
        .collect();
    let Named { lines, unread, mut notes, unnamed_code: unnamed } = names.look_up(code).await;
    let mut lines = lines.into_iter();
    let mut mappings = Mappings::default();
    let mut locations = Vec::with_capacity(frames.len());
    for frame in frames {
        locations.push(match frame {
            RawFrame::Note(name) => Location {
                mapping: mappings.add("", "", None),
                address: 0,
                lines: vec![plain((*name).to_owned())],
            },
            RawFrame::Code(module, offset, probe) => Location {
                mapping: mappings.add(&module.path, &module.build_id, module.code_at(*offset)),
                address: *offset,
                lines: match (probe, lines.next()) {
                    (Some(name), _) => vec![plain(name.clone())],
                    (None, Some(lines)) => lines.to_vec(),
                    (None, None) => vec![plain(format!("{}+{offset:#x}", module.path))],
                },
            },
        });
    }
    if !unread.is_empty() {
        notes.push(Note::Loss(Loss::Unread(unread)));
    }
    (Located { mappings: mappings.list, locations, notes }, unnamed)
}

fn plain(function: String) -> Line {
    Line { function, ..Line::default() }
}

#[derive(Default)]
struct Mappings {
    list: Vec<Mapping>,
    by_name: FxHashMap<(String, String, Option<Range<u64>>), u32>,
}

impl Mappings {
    fn add(&mut self, path: &str, build_id: &str, code: Option<&Range<u64>>) -> u32 {
        let next = self.list.len() as u32;
        let key = (path.to_owned(), build_id.to_owned(), code.cloned());
        *self.by_name.entry(key).or_insert_with_key(|(path, build_id, code)| {
            let [path, build_id] = [path, build_id].map(String::clone);
            self.list.push(Mapping { path, build_id, code: code.clone() });
            next
        })
    }
}
