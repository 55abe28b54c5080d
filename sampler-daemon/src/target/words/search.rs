//! The search for words that count: memory is looked at some times, with a little of the process's own CPU time in between.

use super::memory::PAGE;
use super::steady::{Between, Series, counters};
use super::{Memory, Word};
use crate::target::{process, processor};
use sampler_common::wire::WORDS;
use std::fs;
use std::io;
use std::time::Instant;

/// CPU time of the process between two looks, nanoseconds: first so much, and then more, for what counts more slowly.
const STEPS_NS: [u64; 2] = [60_000_000, 240_000_000];
/// Looks: a word that is anything is more than before in one of two.
const LOOKS: usize = 10;
/// Those before steps count: of all that is there the first two take their time, so that nobody knows how long it was between them for a word.
const SETTLED: usize = 3;
/// Bytes that are looked at.
const MOST_BYTES: usize = 64 << 20;
/// Pages of which it is asked whether they are there: 16 GiB of addresses.
const MOST_PAGES: usize = 1 << 22;
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Words that are followed after the second look.
const MOST_WORDS: usize = 1 << 18;
/// A word that is more by as much than at the last look counts no work.
const MOST_STEP: u32 = 1 << 24;
/// Threads whose CPU time is added up; that of more is read in one, which is coarser.
const THREADS: usize = 64;
/// By how much the coarse CPU time may be ahead of the fine one, nanoseconds: it comes in hundredths of a second, of two kinds.
const RESOLUTION_NS: u64 = 20_000_000;
/// Bytes of a word.
const WORD: usize = size_of::<u32>();

/// How far a search is.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The process has to do something first.
    Waits,
    /// It has looked.
    Looked,
    /// These were found beside those before, the best first; and it may find more.
    Found(Vec<Word>),
    /// It has found all that it will.
    Done,
    /// The process is gone.
    Gone,
}

/// The search in one process.
#[derive(Debug)]
pub struct Search {
    pid: u32,
    start_ticks: u64,
    memory: Memory,
    /// What was there at the first look: addresses, and what they showed.
    chunks: Vec<(u64, Vec<u8>)>,
    series: Vec<Series>,
    /// Looks with these steps.
    looks: usize,
    last: Option<(Instant, Cpu)>,
    between: Vec<Between>,
    /// How often it has been through.
    passes: usize,
    /// Addresses of what was found.
    found: Vec<u64>,
}

impl Search {
    /// In the process that has `pid` and has started at `start_ticks`.
    ///
    /// # Errors
    /// If its memory cannot be read.
    pub fn new(pid: u32, start_ticks: u64) -> io::Result<Search> {
        Ok(Search {
            pid,
            start_ticks,
            memory: Memory::open(pid)?,
            chunks: Vec::new(),
            series: Vec::new(),
            looks: 0,
            last: None,
            between: Vec::new(),
            passes: 0,
            found: Vec::new(),
        })
    }

    /// Whether it keeps what it has seen.
    pub fn has_begun(&self) -> bool {
        self.looks > 0
    }

    /// Looks, if it is time.
    pub fn step(&mut self) -> Step {
        let Some(step_ns) = STEPS_NS.get(self.passes) else { return Step::Done };
        let Some(cpu) = Cpu::of(self.pid, self.start_ticks) else { return Step::Gone };
        let now = Instant::now();
        let Some((then, cpu_then)) = self.last else {
            // The first look comes after a little time, too: what ends soon is left alone.
            self.last = Some((now, cpu));
            return Step::Waits;
        };
        let cpu_ns = cpu.since_ns(&cpu_then);
        if cpu_ns < *step_ns {
            return Step::Waits;
        }
        let wall_ns = (now - then).as_nanos() as f64;
        let passed = Between { wall_ns, cpu_ns: cpu_ns as f64 };
        self.last = Some((now, cpu));
        match self.looks {
            0 => {
                if self.look_first().is_err() {
                    return Step::Gone;
                }
            }
            1 => self.look_again(),
            _ => self.follow(),
        }
        if self.looks >= SETTLED {
            self.between.push(passed);
        }
        self.looks += 1;
        if self.looks < LOOKS && (self.looks == 1 || !self.series.is_empty()) {
            return Step::Looked;
        }
        self.passes += 1;
        self.looks = 0;
        let (series, between) =
            (std::mem::take(&mut self.series), std::mem::take(&mut self.between));
        let found = counters(series, &between, &self.found, WORDS);
        self.found.extend(&found);
        Step::Found(self.named(&found))
    }

    /// All that is there.
    fn look_first(&mut self) -> io::Result<()> {
        let (mut left, mut pages) = (MOST_BYTES, MOST_PAGES);
        for region in self.memory.regions()? {
            for range in self.memory.present(&region, left, &mut pages)? {
                let mut at = range.start;
                while at < range.end && left > 0 {
                    let size = CHUNK.min((range.end - at) as usize).min(left);
                    let mut chunk = vec![0; size];
                    if self.memory.read(at, &mut chunk) {
                        self.chunks.push((at, chunk));
                    }
                    at += size as u64;
                    left -= size;
                }
            }
        }
        Ok(())
    }

    /// Which of it is more by now.
    fn look_again(&mut self) {
        let mut now = vec![0; CHUNK];
        for (start, before) in std::mem::take(&mut self.chunks) {
            let now = &mut now[..before.len()];
            if !self.memory.read(start, now) {
                continue;
            }
            let words = before.chunks_exact(WORD).zip(now.chunks_exact(WORD));
            for (at, (before, now)) in (start..).step_by(WORD).zip(words) {
                let step = word(now).wrapping_sub(word(before));
                if (1..MOST_STEP).contains(&step) && self.series.len() < MOST_WORDS {
                    self.series.push(Series { at, last: word(now), steps: Vec::new() });
                }
            }
        }
    }

    /// Which of those that were more are so again.
    fn follow(&mut self) {
        let mut now = [0; PAGE as usize];
        let mut read = None;
        let (memory, counts) = (&self.memory, self.looks >= SETTLED);
        self.series.retain_mut(|series| {
            let start = series.at / PAGE * PAGE;
            if read.is_none_or(|(of, _)| of != start) {
                read = Some((start, memory.read(start, &mut now)));
            }
            let offset = (series.at - start) as usize;
            let shown = word(&now[offset..offset + WORD]);
            let step = shown.wrapping_sub(series.last);
            series.last = shown;
            if counts {
                series.steps.push(step);
            }
            read.is_some_and(|(_, is_there)| is_there) && (1..MOST_STEP).contains(&step)
        });
    }

    fn named(&self, found: &[u64]) -> Vec<Word> {
        let regions = self.memory.regions().unwrap_or_default();
        let name = |at: u64| {
            let region = regions.iter().find(|region| region.range.contains(&at))?;
            Some(Word { at, name: region.name_of(self.pid, at) })
        };
        found.iter().filter_map(|at| name(*at)).collect()
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

/// CPU time that a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    /// Of all its threads, those that are gone as well, nanoseconds.
    coarse_ns: u64,
    /// The same more finely, of those that live (`Documentation/scheduler/sched-stats.rst`), where that can be had.
    fine_ns: Option<u64>,
}

impl Cpu {
    /// By now; `None`: it is gone.
    fn of(pid: u32, start_ticks: u64) -> Option<Cpu> {
        let coarse_ns = processor::processor_ns(pid, start_ticks)?;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        let own = |thread: fs::DirEntry| {
            let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            stat.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let each: Vec<u64> = threads.take(THREADS + 1).filter_map(own).collect();
        let is_fine = (1..=THREADS).contains(&each.len()) && process::is_there(pid, start_ticks);
        Some(Cpu { coarse_ns, fine_ns: is_fine.then(|| each.into_iter().sum()) })
    }

    /// What was used since then, nanoseconds. Where threads have ended the finer one lacks theirs.
    fn since_ns(&self, then: &Cpu) -> u64 {
        let coarse_ns = self.coarse_ns.saturating_sub(then.coarse_ns);
        let fine_ns = self.fine_ns.zip(then.fine_ns).and_then(|(now, then)| now.checked_sub(then));
        fine_ns.filter(|fine_ns| coarse_ns <= fine_ns + RESOLUTION_NS).unwrap_or(coarse_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Running;
    use crate::target::process::Process;
    use std::time::Duration;

    #[test]
    fn a_counter_is_found() {
        let child = Running::counting();
        let process = Process::open(child.pid()).unwrap();
        let mut search = Search::new(process.pid, process.start_ticks).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let words = loop {
            match search.step() {
                Step::Found(words) => break words,
                Step::Gone | Step::Done => panic!("it is gone"),
                Step::Waits | Step::Looked => std::thread::yield_now(),
            }
            assert!(Instant::now() < deadline);
        };
        let memory = Memory::open(process.pid).unwrap();
        let first = words.first().expect("a counter");
        let before = memory.word(first.at).unwrap();
        let after = loop {
            let now = memory.word(first.at).unwrap();
            if now != before {
                break now;
            }
            assert!(Instant::now() < deadline);
        };
        assert!(after.wrapping_sub(before) < 1 << 30, "{words:?}");
        drop(child);
        assert_eq!(search.step(), Step::Gone);
    }

    #[test]
    fn time_of_threads_that_have_ended_counts() {
        let cpu = |coarse_ms: u64, fine_ms: Option<u64>| Cpu {
            coarse_ns: coarse_ms * 1_000_000,
            fine_ns: fine_ms.map(|ms| ms * 1_000_000),
        };
        let since = |now: Cpu, then: Cpu| now.since_ns(&then) / 1_000_000;
        assert_eq!(since(cpu(110, Some(107)), cpu(50, Some(44))), 63);
        // One that had used 90 ms is gone, and another has used some.
        assert_eq!(since(cpu(170, Some(80)), cpu(110, Some(107))), 60);
        assert_eq!(since(cpu(170, Some(112)), cpu(110, Some(107))), 60);
        assert_eq!(since(cpu(170, None), cpu(110, Some(107))), 60);
    }
}
