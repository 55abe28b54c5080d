//! Build ids of the executables of processes, from the frames of their stacks.

use super::services::path;
use crate::pipeline::{Program, RawFrame, RawProfile};
use rustc_hash::FxHashMap;

/// Maximum number of remembered processes.
const MAX_PROCESSES: usize = 16 * 1024;

/// Build ids by pid and path of the executable. They stay known in windows without samples.
#[derive(Default)]
pub(super) struct Builds(FxHashMap<(u32, String), String>);

impl Builds {
    /// Learns the build ids of the processes that have samples in a profile.
    pub(super) fn learn(&mut self, raw: &RawProfile) {
        if self.0.len() >= MAX_PROCESSES {
            self.0.clear();
        }
        for row in &raw.rows {
            // All strata of a row belong to one process.
            let Some((stratum, _)) = row.row.strata().next() else { continue };
            let path = path(&raw.programs[stratum.process as usize]);
            // Frames of the executable are near the root.
            let build_id =
                row.frames.iter().rev().find_map(|frame| match &raw.frames[*frame as usize] {
                    RawFrame::Code(module, ..) if module.path == path => Some(&module.build_id),
                    _ => None,
                });
            let Some(build_id) = build_id else { continue };
            let known = self.0.entry((row.pid, path.to_owned())).or_default();
            if known != build_id {
                known.clone_from(build_id);
            }
        }
    }

    /// Returns the build id of a process's executable; empty if it is unknown.
    pub(super) fn of(&self, pid: u32, program: &Program) -> &str {
        self.0.get(&(pid, path(program).to_owned())).map_or("", String::as_str)
    }
}
