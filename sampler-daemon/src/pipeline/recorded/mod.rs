//! Answers from a recorded ring: the bytes of a real run are read into the store, and its answers
//! are compared with `golden.json`.
//!
//! `record.py` records a run of `program`. `program` uses no library, so its stacks can be unwound
//! with the file in this directory.
//! Some records have a copy of the stack. The others name a cached stack by its id: the test must
//! assign the same id.
//! Exact totals, losses and costs are not compared: they come from the kernel, not from the ring.

mod answer;

use super::processes::process::ProfiledProcess;
use super::records::ingest::Ingest;
use crate::bpf::ring::{Record, parse};
use crate::inspect::mappings::{Backing, Mapping};
use crate::store::{ProcessId, ProcessRecord, Sampling};
use sampler_common::sampling::Strategy;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tokio::sync::broadcast;

const RING: &[u8] = include_bytes!("ring.bin");
const RUN: &str = include_str!("run.json");
/// The sampling interval of the run, as in `record.py`.
const INTERVAL_BYTES: u64 = 2 << 10;
/// Time from the last record to the requests.
const LATER_NS: u64 = 1_000_000_000;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pipeline/recorded")
}

/// The records: length and padding, each rounded up to 8 bytes, as in the ring.
fn records() -> impl Iterator<Item = &'static [u8]> {
    let mut rest = RING;
    std::iter::from_fn(move || {
        let (head, behind) = rest.split_first_chunk::<8>()?;
        let length = u32::from_ne_bytes(*head.first_chunk()?) as usize;
        let (record, next) = behind.split_at(length.next_multiple_of(8));
        rest = next;
        Some(&record[..length])
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The mapping of the program's code in the recorded processes.
fn code(run: &Value) -> Mapping {
    let path = directory().join("program");
    let status = fs::metadata(&path).unwrap();
    let at = |place: usize| number(&run["code"][place]);
    Mapping {
        start: at(0),
        end: at(1),
        offset: at(2),
        executable: true,
        device: (libc::major(status.dev()) as i32, libc::minor(status.dev()) as i32),
        inode: status.ino(),
        backing: Backing::File(path.display().to_string()),
    }
}

/// The store after the last record, and the time of the requests.
fn replayed() -> (Ingest, u64) {
    let run: Value = serde_json::from_str(RUN).unwrap();
    let sampling = Sampling {
        strategy: Strategy::Geometric,
        interval_bytes: INTERVAL_BYTES,
        one_in: None,
        samples_per_second: None,
    };
    let times = records().filter_map(|bytes| parse(bytes).sampled_ns());
    let (first_ns, last_ns) =
        times.fold((u64::MAX, 0), |(first, last), ns| (first.min(ns), last.max(ns)));
    let mut ingest = Ingest::new(broadcast::channel(1).0, sampling, first_ns, false);
    ingest.stack_cache.is_on = true;
    for (pid, slot) in run["pids"].as_array().unwrap().iter().zip(0..) {
        let pid = number(pid) as u32;
        let record = ProcessRecord::new(pid, ingest.default_sampling());
        let process = ingest.processes.insert(record);
        ingest.history.add_running(pid, || Some(vec![code(&run)]));
        let generation = records()
            .find_map(|bytes| parse(bytes).space().filter(|of| of.slot == slot))
            .unwrap()
            .generation;
        attach(&mut ingest, slot, process, pid, generation);
    }
    for bytes in records() {
        let record = parse(bytes);
        assert!(!matches!(record, Record::Malformed), "{bytes:?}");
        ingest.record(record);
    }
    (ingest, last_ns + LATER_NS)
}

fn attach(ingest: &mut Ingest, slot: u32, process: ProcessId, pid: u32, generation: u32) {
    ingest.table.insert(slot, ProfiledProcess::new(process, pid, generation));
}

/// `UPDATE_GOLDEN=1` writes `golden.json` anew; the diff shows what has changed.
#[test]
fn answers_from_a_recorded_ring_stay_the_same() {
    let (ingest, now_ns) = replayed();
    let text = format!("{:#}\n", answer::answer(&ingest, now_ns));
    let path = directory().join("golden.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "golden.json changed (UPDATE_GOLDEN=1 accepts it):\n{text}");
}
