//! A scheduler that splits trials at every atomic operation.
//!
//! A trial is determined by its random numbers and the results of its atomic operations. So the
//! scheduler does not suspend a thread. It runs a trial again from its start with the recorded
//! answers, up to the first operation without an answer. That operation is the next step to
//! schedule. There are no threads and no timing, every interleaving is reachable, and worlds can be
//! cloned to enumerate all interleavings.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::cell::{Cell as Slot, RefCell};

use sampler_common::sampling::{Cell, Trial};

use crate::common::SplitMix;

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    /// `fetch_sub`.
    Subtract(i64),
    /// `swap`.
    Store(i64),
}

/// A cell that answers from a record, and keeps the first operation without an answer.
pub(crate) struct Replay<'a> {
    answers: &'a [i64],
    position: Slot<usize>,
    requested: RefCell<Option<Operation>>,
}

impl Replay<'_> {
    fn answer(&self, operation: Operation) -> i64 {
        let position = self.position.get();
        self.position.set(position + 1);
        if position < self.answers.len() {
            return self.answers[position];
        }
        // The trial's result with this answer is discarded.
        self.requested.borrow_mut().get_or_insert(operation);
        0
    }
}

impl Cell for Replay<'_> {
    fn fetch_sub(&self, amount: i64) -> i64 {
        self.answer(Operation::Subtract(amount))
    }

    fn swap(&self, value: i64) -> i64 {
        self.answer(Operation::Store(value))
    }
}

/// The code under test: `trial`, or a broken one that the checks must catch.
pub(crate) type Rule = fn(&Replay<'_>, u64, &mut SplitMix) -> Trial;

/// A thread: its trials, and its position.
#[derive(Clone)]
pub(crate) struct Thread {
    hazards: Vec<u64>,
    seed: u64,
    answers: Vec<i64>,
    /// Results of the finished trials.
    pub(crate) results: Vec<Trial>,
}

impl Thread {
    /// A thread that charges `hazards`, one trial each.
    pub(crate) fn new(hazards: &[u64], seed: u64) -> Thread {
        Thread { hazards: hazards.to_vec(), seed, answers: Vec::new(), results: Vec::new() }
    }

    /// Whether all trials of the thread are finished.
    pub(crate) fn finished(&self) -> bool {
        self.results.len() == self.hazards.len()
    }

    /// Whether the thread is between two operations of a trial.
    pub(crate) fn suspended(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The first operation without an answer, or the result.
    fn run(&self, rule: Rule) -> Result<Trial, Operation> {
        let replay = Replay {
            answers: &self.answers,
            position: Slot::new(0),
            requested: RefCell::new(None),
        };
        let index = self.results.len();
        let mut random = SplitMix(self.seed.wrapping_add((index as u64) << 32));
        let result = rule(&replay, self.hazards[index], &mut random);
        replay.requested.into_inner().map_or(Ok(result), Err)
    }
}

/// One operation that was carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Index of the thread.
    pub(crate) thread: usize,
    /// Index of the thread's trial.
    pub(crate) trial: usize,
    /// The operation.
    pub(crate) operation: Operation,
    /// The cell's value before.
    pub(crate) before: i64,
}

/// A cell and the threads that use it.
#[derive(Clone)]
pub(crate) struct World {
    /// The cell.
    pub(crate) value: i64,
    /// The threads.
    pub(crate) threads: Vec<Thread>,
    /// The operations so far.
    pub(crate) events: Vec<Event>,
}

impl World {
    /// A world before the first operation.
    pub(crate) fn new(value: i64, threads: Vec<Thread>) -> World {
        World { value, threads, events: Vec::new() }
    }

    /// Indices of the unfinished threads.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.threads.len()).filter(|index| !self.threads[*index].finished())
    }

    /// Carries out the next atomic operation of thread `index`, and what follows up to the
    /// operation after it.
    pub(crate) fn step(&mut self, rule: Rule, index: usize) {
        let thread = &mut self.threads[index];
        if let Err(operation) = thread.run(rule) {
            let before = self.value;
            self.events.push(Event {
                thread: index,
                trial: thread.results.len(),
                operation,
                before,
            });
            thread.answers.push(before);
            self.value = match operation {
                Operation::Subtract(amount) => before.wrapping_sub(amount),
                Operation::Store(stored) => stored,
            };
        }
        if let Ok(result) = thread.run(rule) {
            thread.results.push(result);
            thread.answers.clear();
        }
    }

    /// Calls `visit` at the end of every interleaving.
    pub(crate) fn every_end(&self, rule: Rule, visit: &mut dyn FnMut(&World)) {
        let mut over = true;
        for index in self.open() {
            over = false;
            let mut next = self.clone();
            next.step(rule, index);
            next.every_end(rule, visit);
        }
        if over {
            visit(self);
        }
    }

    /// Runs the world to the end. `schedule` gets the threads with their results, never the cell,
    /// and returns an unfinished thread.
    pub(crate) fn follow(
        &mut self,
        rule: Rule,
        schedule: &mut dyn FnMut(&[Thread], &[usize]) -> usize,
    ) {
        loop {
            let open: Vec<usize> = self.open().collect();
            if open.is_empty() {
                return;
            }
            let chosen = schedule(&self.threads, &open);
            self.step(rule, chosen);
        }
    }
}
