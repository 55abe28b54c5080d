//! What counts the work of a process that has a budget, beside its clock ([`sampler_common::duty::Tally`]): what it reads and writes, and words of its memory that it counts in itself.

use super::duty::Cycle;
use super::searching::Searched;
use super::worker::Worker;
use crate::store::ProcessId;
use crate::target::traffic;
use crate::target::words::{Memory, Unread, Word};
use sampler_common::duty::{Groups, Look, Steps, TALLIES, TRAFFIC};
use sampler_common::wire::{UNKNOWN_TALLY, WORDS};
use std::time::{Duration, Instant};

/// How often the counters of a process are looked at, at least.
const EACH: Duration = Duration::from_secs(2);

/// The words of a process that count.
#[derive(Debug, Default)]
pub(super) struct Words {
    memory: Option<Memory>,
    all: Vec<Counter>,
}

/// One of them.
#[derive(Debug)]
struct Counter {
    word: Word,
    /// What it showed at the last look.
    shown: u32,
    /// What it has counted since the first.
    counted: u64,
    /// Whether it is there, and has only become more.
    is_one: bool,
}

/// What a word has counted by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    /// So much since the first look, when it shows this.
    Counted { counted: u64, shown: u32 },
    /// It is there no more, or has become less: it counts nothing.
    Lost,
    /// Its process has ended: what was seen last stays.
    Gone,
}

impl Words {
    /// More of them, in this memory.
    fn add(&mut self, memory: Memory, words: Vec<Word>) {
        let counter = |word: Word| {
            let shown = memory.word(word.at).ok()?;
            Some(Counter { word, shown, counted: 0, is_one: true })
        };
        self.all.extend(words.into_iter().filter_map(counter));
        self.all.truncate(WORDS);
        self.memory = Some(memory);
    }

    fn addresses(&self) -> Vec<u64> {
        self.all.iter().map(|of| of.word.at).collect()
    }

    /// What each has counted by now.
    fn counted(&self) -> Vec<Now> {
        let Some(memory) = &self.memory else { return Vec::new() };
        let counted = |of: &Counter| match memory.word(of.word.at) {
            Err(Unread::Gone) => Now::Gone,
            Ok(shown) if of.is_one => more(of.shown, shown).map_or(Now::Lost, |more| {
                Now::Counted { counted: of.counted + u64::from(more), shown }
            }),
            _ => Now::Lost,
        };
        self.all.iter().map(counted).collect()
    }
}

/// By how much a word is more; `None`: it is less, so that it counts nothing.
fn more(before: u32, now: u32) -> Option<u32> {
    let step = now.wrapping_sub(before);
    (step <= i32::MAX as u32).then_some(step)
}

/// What a word has counted in a window at whose ends it was so much, as a tally takes it: from 0 on. `None`: it has become less.
fn in_window([opened, closed]: [u64; 2]) -> Option<[u64; 2]> {
    if opened == UNKNOWN_TALLY || closed == UNKNOWN_TALLY {
        return Some([UNKNOWN_TALLY; 2]);
    }
    more(opened as u32, closed as u32).map(|step| [0, u64::from(step)])
}

impl Worker {
    /// Has the counters of a process looked for.
    pub(super) fn look_for_words(&mut self, slot: u32) {
        if let Some(duties) = &self.kernel.duties {
            duties.set_words(slot, &[]);
        }
        let process = self.attached.get(&slot).and_then(|of| of.process.as_ref());
        let (Some(process), Some(source), Some(cycle)) =
            (process, self.ingest.sources.get(&slot), self.cycles.get_mut(&slot))
        else {
            return;
        };
        cycle.words = Words::default();
        let (pid, start_ticks) = (process.pid, process.start_ticks);
        let generation = source.generation;
        if let Some(searcher) = &self.searcher {
            searcher.ask(Searched { slot, pid, start_ticks, generation });
        }
    }

    /// Takes the counters that have been found.
    pub(super) fn take_words(&mut self) {
        let Some(searcher) = &self.searcher else { return };
        let found: Vec<_> = searcher.found().collect();
        for (of, words) in found {
            let process = self.attached.get(&of.slot).and_then(|of| of.process.as_ref());
            let is_it = process.is_some_and(|process| {
                (process.pid, process.start_ticks) == (of.pid, of.start_ticks)
            });
            let source = self.ingest.sources.get(&of.slot);
            let is_its = source.is_some_and(|source| source.generation == of.generation);
            let (Some(cycle), Some(duties), true) =
                (self.cycles.get_mut(&of.slot), &self.kernel.duties, is_it && is_its)
            else {
                continue;
            };
            tracing::debug!(slot = of.slot, ?words, "counters");
            let Ok(memory) = Memory::open(of.pid) else {
                tracing::debug!(slot = of.slot, "its memory cannot be opened");
                continue;
            };
            cycle.words.add(memory, words);
            duties.set_words(of.slot, &cycle.words.addresses());
            self.look_at_tallies(of.slot);
        }
    }

    /// What the tallies of a process show by now, beside its clock.
    pub(super) fn looks(&self, slot: u32) -> [Option<Look>; TALLIES] {
        let mut looks = [None; TALLIES];
        let (Some(cycle), Some(duties)) = (self.cycles.get(&slot), &self.kernel.duties) else {
            return looks;
        };
        let ticks = duties.clock(slot).ticks;
        for (to, word) in looks[TRAFFIC + 1..].iter_mut().zip(cycle.words.counted()) {
            *to = match word {
                Now::Counted { counted, .. } => Some(Look { counted, ticks }),
                Now::Lost | Now::Gone => None,
            };
        }
        looks[TRAFFIC] = self.traffic(slot);
        looks
    }

    /// What a process has read and written by now; `None` where nobody knows.
    fn traffic(&self, slot: u32) -> Option<Look> {
        let process = self.attached.get(&slot)?.process.as_ref()?;
        let counted = traffic::bytes(process.pid, process.start_ticks)?;
        Some(Look { counted, ticks: self.kernel.duties.as_ref()?.clock(slot).ticks })
    }

    /// Keeps what tallies show by now, for when the process is gone.
    pub(super) fn look_at_tallies(&mut self, slot: u32) {
        if let Some((id, look)) = self.process_of(slot).zip(self.traffic(slot)) {
            self.ingest.clustered.groups_mut(id).tallies_mut()[TRAFFIC].look(look);
        }
        self.look_at_words(slot);
    }

    fn process_of(&self, slot: u32) -> Option<ProcessId> {
        self.ingest.sources.get(&slot).map(|source| source.process)
    }

    /// The same of its words alone. One that is not there any more, or has become less, or much more at once, is no counter.
    fn look_at_words(&mut self, slot: u32) {
        let (Some(id), Some(duties)) = (self.process_of(slot), &self.kernel.duties) else { return };
        let Some(cycle) = self.cycles.get_mut(&slot) else { return };
        let (now, ticks) = (cycle.words.counted(), duties.clock(slot).ticks);
        let tallies = &mut self.ingest.clustered.groups_mut(id).tallies_mut()[TRAFFIC + 1..];
        for ((counter, now), tally) in cycle.words.all.iter_mut().zip(now).zip(tallies) {
            match now {
                Now::Counted { counted, shown } if !tally.leaps_to(&Look { counted, ticks }) => {
                    (counter.counted, counter.shown) = (counted, shown);
                    tally.look(Look { counted, ticks });
                }
                Now::Counted { .. } | Now::Lost if counter.is_one => {
                    tracing::debug!(slot, name = counter.word.name, "counts no more");
                    counter.is_one = false;
                    tally.lose();
                }
                _ => {}
            }
        }
    }

    /// Looks at the words of all processes now and then, also where windows are far apart: of a word only the lower half is looked at.
    pub(super) fn look_at_all_words(&mut self) {
        if self.looked_at_words.elapsed() < EACH {
            return;
        }
        self.looked_at_words = Instant::now();
        let has_any = |(_, cycle): &(&u32, &Cycle)| !cycle.words.all.is_empty();
        let slots: Vec<u32> = self.cycles.iter().filter(has_any).map(|(slot, _)| *slot).collect();
        slots.into_iter().for_each(|slot| self.look_at_words(slot));
    }

    /// Settles at which word's steps the planned window of a process begins and ends.
    pub(super) fn choose_steps(&mut self, slot: u32) {
        let (Some(source), Some(cycle)) =
            (self.ingest.sources.get(&slot), self.cycles.get_mut(&slot))
        else {
            return;
        };
        let groups = self.ingest.clustered.groups(source.process);
        cycle.steps_by = groups.and_then(|of| cycle.controller.steps_by(&cycle.window, of));
    }

    /// Address of that word, if it is still there.
    pub(super) fn step_at(&mut self, slot: u32) -> Option<u64> {
        let cycle = self.cycles.get_mut(&slot)?;
        let counter = cycle.steps_by.and_then(|by| cycle.words.all.get(by - TRAFFIC - 1));
        let at = counter.filter(|of| of.is_one).map(|of| of.word.at);
        cycle.steps_by = cycle.steps_by.filter(|_| at.is_some());
        at
    }

    /// The tally of that word, where the window both began and ended so.
    pub(super) fn stepped(&self, slot: u32, steps: Option<Steps>) -> Option<usize> {
        steps.filter(Steps::are_both).and(self.cycles.get(&slot)?.steps_by)
    }

    /// What each tally has counted in the window of a process that has ended, in which so many bytes were allocated by so many allocations.
    pub(super) fn tallied(&mut self, slot: u32, allocated: [f64; 2]) -> [Option<f64>; TALLIES] {
        let mut tallied = [None; TALLIES];
        let (Some(duties), Some(source), Some(cycle)) =
            (&self.kernel.duties, self.ingest.sources.get(&slot), self.cycles.get_mut(&slot))
        else {
            return tallied;
        };
        let tallies = self.ingest.clustered.groups_mut(source.process).tallies_mut();
        tallied[TRAFFIC] = tallies[TRAFFIC].window(duties.traffic(slot), allocated);
        for (number, ends) in duties.words(slot).into_iter().enumerate() {
            let (Some(counter), tally) =
                (cycle.words.all.get_mut(number), &mut tallies[TRAFFIC + 1 + number])
            else {
                break;
            };
            match in_window(ends) {
                Some(ends) => tallied[TRAFFIC + 1 + number] = tally.window(ends, allocated),
                None => {
                    tracing::debug!(slot, name = counter.word.name, ?ends, "counts no more");
                    counter.is_one = false;
                    tally.lose();
                }
            }
        }
        tracing::debug!(slot, ?tallied, tallies = ?self.verdicts(source.process), "tallies");
        tallied
    }

    /// What is known of each, for the log.
    fn verdicts(&self, id: ProcessId) -> Vec<String> {
        let groups = self.ingest.clustered.groups(id);
        groups.into_iter().flat_map(Groups::described).collect()
    }

    /// Where the counter of that number is, of a process that runs.
    pub(super) fn word_name(&self, id: ProcessId, number: u32) -> Option<String> {
        let cycle = self.cycles.get(&self.slot_of(id)?)?;
        let counter = cycle.words.all.get((number as usize).checked_sub(1)?)?;
        Some(counter.word.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_more() {
        assert_eq!(more(5, 9), Some(4));
        assert_eq!(more(u32::MAX, 2), Some(3), "of the lower half of a longer one");
        assert_eq!(more(9, 5), None);
        assert_eq!(in_window([7, 9]), Some([0, 2]));
        assert_eq!(in_window([9, 7]), None);
        for unknown in [[UNKNOWN_TALLY, 7], [7, UNKNOWN_TALLY]] {
            assert_eq!(in_window(unknown), Some([UNKNOWN_TALLY; 2]));
        }
    }

    #[test]
    fn a_word_of_a_process_is_followed() {
        let mut counter = Box::new(u32::MAX);
        let word = Word { at: std::ptr::from_ref(&*counter) as u64, name: "heap".to_owned() };
        let none = Word { at: 8, name: "memory".to_owned() };
        let mut words = Words::default();
        words.add(Memory::open(std::process::id()).unwrap(), vec![word, none]);
        assert_eq!(words.addresses().len(), 1);
        let counted = |counted, shown| [Now::Counted { counted, shown }];
        assert_eq!(words.counted(), counted(0, u32::MAX));
        *counter = 6;
        assert_eq!(words.counted(), counted(7, 6));
        *counter = u32::MAX - 1;
        assert_eq!(words.counted(), [Now::Lost]);
    }
}
