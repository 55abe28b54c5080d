//! The memory of processes beside what a profile says that they hold.

use super::scope::Scope;
use super::usable::Usable;
use crate::pipeline::command::ProfileRequest;
use crate::pipeline::worker::Worker;
use crate::store::ProcessId;
use crate::target::memory::{self, Memory};
use sampler_common::estimate::plus_minus;
use sampler_common::estimate::ratio::Ratio;
use sampler_common::estimate::{Confidence, Estimate};
use sampler_common::profile::Kind;
use sampler_common::units::human_bytes;

impl Worker {
    /// Pid and start of a running process.
    pub(in crate::pipeline) fn running(&self, id: ProcessId) -> Option<(u32, u64)> {
        let process = self.ingest.table.attached(self.slot_of(id)?)?.process.as_ref()?;
        Some((process.pid, process.start_ticks))
    }

    /// The running ones of `processes`, if all that they hold now is asked for.
    pub(super) fn beside(
        &self,
        processes: &[ProcessId],
        request: &ProfileRequest,
    ) -> Vec<(u32, u64)> {
        match request.kind == Kind::Live && request.scope == Scope::ALL {
            true => processes.iter().filter_map(|id| self.running(*id)).collect(),
            false => Vec::new(),
        }
    }

    /// How much larger than requested live blocks are, in words; nothing where that is not known of all of them.
    pub(super) fn usable_note(
        &self,
        processes: &[ProcessId],
        confidence: Confidence,
    ) -> Option<String> {
        let mut usable = Usable::default();
        self.usable(processes).values().for_each(|one| usable.add(one));
        let ratio = usable.sums.ratio(1.0, confidence)?;
        let Ratio { value, low, high, samples } = ratio;
        let refused = match usable.refused {
            0 => String::new(),
            n => format!(", {n} without a plausible header"),
        };
        Some(format!(
            "glibc's blocks are {value:.3} ({low:.3} … {high:.3}) times what was requested ({samples} looked at{refused})"
        ))
    }
}

/// What is held, set beside what the kernel says that the processes have; nothing where none is left. `/proc` takes its time, so this
/// is away from the worker's thread.
pub(super) async fn note(running: Vec<(u32, u64)>, held: &Estimate) -> Option<String> {
    if running.is_empty() {
        return None;
    }
    let read = tokio::task::spawn_blocking(move || {
        let each = running.into_iter().filter_map(|(pid, start)| memory::read(pid, start));
        each.collect::<Vec<Memory>>()
    });
    let each = read.await.ok().filter(|each| !each.is_empty())?;
    let number = each.len();
    Some(text(held, number, each.into_iter().sum()))
}

fn text(held: &Estimate, processes: usize, memory: Memory) -> String {
    let whose = match processes {
        1 => String::new(),
        n => format!(" of the {n} processes that run"),
    };
    let interval = match plus_minus(held) {
        _ if !held.has_interval() => " (no interval)".to_owned(),
        // Of nothing there is none in percent.
        around if around.is_empty() => around,
        around => format!(" {around}"),
    };
    format!(
        "held {}{interval} beside {} of heap mappings{whose}, RSS {}",
        human_bytes(held.value),
        human_bytes(memory.heap_bytes as f64),
        human_bytes(memory.rss_bytes as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_common::estimate::Method;

    #[test]
    fn held_is_said_with_its_interval() {
        let mib = f64::from(1 << 20);
        let held = Estimate {
            value: 100.0 * mib,
            low: 96.0 * mib,
            high: 104.0 * mib,
            confidence: Confidence::DEFAULT,
            samples: 9,
            method: Method::Weighted,
        };
        let memory = Memory { rss_bytes: 210 << 20, anonymous_bytes: 1, heap_bytes: 180 << 20 };
        assert_eq!(
            text(&held, 1, memory),
            "held 100 MiB ±4% beside 180 MiB of heap mappings, RSS 210 MiB"
        );
        assert!(text(&held, 3, memory).contains("mappings of the 3 processes that run, RSS"));
    }
}
