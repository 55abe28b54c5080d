//! Links are closed by threads of their own: a link's breakpoints go at once, and then it waits some 35 ms for whoever is still in its programs.
//!
//! Links come in the order in which they were attached ([`crate::bpf::Kernel::attach`]), and go the other way round: entries before returns, which
//! would be followed for nothing else, and both before frees, which nobody would see of what is still sampled. Were each to wait for
//! the one before, a return probe that harms its process would stay several times as long: so each has a thread, and they go within a millisecond.

use super::clock::thread_ns;
use super::worker::Worker;
use crate::bpf::Link;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};

/// Threads for the links of one process, or of all: perf events beyond that many wait for others.
const THREADS: usize = 32;

/// What each thread drops, the last that came first.
fn dealt<T>(links: Vec<T>, threads: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = Vec::new();
    hands.resize_with(threads.min(links.len()), Vec::new);
    for (number, link) in links.into_iter().rev().enumerate() {
        hands[number % threads].push(link);
    }
    hands
}

/// Drops links on a thread, and adds the CPU time that it takes to `spent_ns`.
///
/// # Errors
/// If no thread can be made: the links are dropped all the same, before this returns.
fn drop_aside<T: Send + 'static>(
    thread: Builder,
    links: Vec<T>,
    spent_ns: Arc<AtomicU64>,
) -> io::Result<JoinHandle<()>> {
    thread.spawn(move || {
        drop(links);
        spent_ns.fetch_add(thread_ns(), Relaxed);
    })
}

/// Closes links, and waits until they are gone.
pub(super) fn close_and_wait(links: Vec<Link>) {
    let drops = dealt(links, THREADS).into_iter();
    let threads: Vec<_> =
        drops.map(|hand| drop_aside(Builder::new(), hand, Arc::default())).collect();
    for thread in threads.into_iter().flatten() {
        // A thread that only drops links does not panic.
        let _ = thread.join();
    }
}

impl Worker {
    /// Closes links.
    pub(super) fn close(&mut self, links: Vec<Link>) {
        self.close_counting(links, &Arc::default());
    }

    /// Closes links, and adds the CPU time that it takes to `spent_ns`.
    pub(super) fn close_counting(&mut self, links: Vec<Link>, spent_ns: &Arc<AtomicU64>) {
        for hand in dealt(links, THREADS) {
            let before = thread_ns();
            match drop_aside(Builder::new(), hand, Arc::clone(spent_ns)) {
                Ok(thread) => self.closing.push(thread),
                Err(error) => {
                    spent_ns.fetch_add(thread_ns().saturating_sub(before), Relaxed);
                    tracing::warn!("no thread to close probes on, samples wait meanwhile: {error}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_attached_last_goes_first() {
        assert_eq!(
            dealt(vec!["free", "new", "leave", "enter"], 9),
            [["enter"], ["leave"], ["new"], ["free"]]
        );
        assert_eq!(dealt((0..5).collect(), 2), [vec![4, 2, 0], vec![3, 1]]);
        assert!(dealt(Vec::<u8>::new(), 2).is_empty());
    }

    #[test]
    fn links_are_closed_with_a_thread_and_without() {
        let links = Arc::new(());
        let spent_ns = Arc::new(AtomicU64::new(0));
        let thread = drop_aside(Builder::new(), vec![Arc::clone(&links)], Arc::clone(&spent_ns));
        thread.unwrap().join().unwrap();
        assert_eq!(Arc::strong_count(&links), 1);
        assert!(spent_ns.load(Relaxed) > 0);
        // No machine has room for such a stack.
        let none = Builder::new().stack_size(1 << 56);
        assert!(drop_aside(none, vec![Arc::clone(&links)], spent_ns).is_err());
        assert_eq!(Arc::strong_count(&links), 1);
    }
}
