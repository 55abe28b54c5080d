//! Notes about generated code without names: what would name it.

use crate::inspect::process::runtime;
use crate::unwind::GeneratedCode;
use sampler_common::note::{Names, Note, Runtime, UnnamedCode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which no further process is looked at. Later answers look at the next ones, because
/// runtimes are remembered.
const LOOK_TIME: Duration = Duration::from_millis(300);

/// Longest time for all processes. A file of a process may be on a file system that never answers.
const MAX_TIME: Duration = Duration::from_secs(1);

/// The notes, one for each runtime. Without an answer in time there are none.
pub(in crate::pipeline::report) async fn notes(unnamed: Vec<Arc<GeneratedCode>>) -> Vec<Note> {
    if unnamed.is_empty() {
        return Vec::new();
    }
    let looked_up = tokio::task::spawn_blocking(move || by_runtime(&unnamed));
    let found = tokio::time::timeout(MAX_TIME, looked_up).await;
    let found = found.ok().and_then(Result::ok).unwrap_or_default();
    found.into_iter().map(|of| Note::Names(Names::Generated(of))).collect()
}

fn by_runtime(unnamed: &[Arc<GeneratedCode>]) -> Vec<UnnamedCode> {
    let mut pids: BTreeMap<(Runtime, bool), Vec<u32>> = BTreeMap::new();
    let begin = Instant::now();
    for code in unnamed.iter().take_while(|_| begin.elapsed() < LOOK_TIME) {
        let (runtime, is_running) = (code.runtime(), code.is_running());
        // Other runtimes name all that they generate once they have a map.
        if runtime == Runtime::Java || !code.has_map() {
            pids.entry((runtime, is_running)).or_default().push(code.pid());
        }
    }
    let note = |((runtime, are_running), mut pids): ((Runtime, bool), Vec<u32>)| {
        pids.sort_unstable();
        pids.dedup();
        let inner_pid = pids.first().and_then(|pid| runtime::inner_pid(*pid));
        UnnamedCode { runtime, inner_pid: inner_pid.filter(|_| are_running), pids, are_running }
    };
    pids.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::GeneratedCode;

    #[tokio::test]
    async fn a_process_is_listed_once_with_its_state() {
        let own = std::process::id();
        // No process has such a pid.
        let code = [own, own, u32::MAX].map(|pid| Arc::new(GeneratedCode::of(pid, false)));
        let notes = notes(code.to_vec()).await;
        let texts: Vec<String> = notes.iter().map(Note::to_string).collect();
        let gone = "generated code has no names: it has no perf map (/tmp/perf-PID.map)";
        assert_eq!(texts, [u32::MAX, own].map(|pid| format!("pid {pid}: {gone}")));
    }
}
