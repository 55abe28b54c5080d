//! Probes of windows come and go at once: what the kernel waits for has been waited for before ([`crate::bpf::ahead`]).

use super::worker::Worker;
use crate::bpf::Link;
use crate::bpf::ahead::Ahead;
use crate::bpf::duty::Duties;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is seen to while a window is open: less than what the kernel would wait for.
const PAUSE: Duration = Duration::from_millis(4);
/// Windows that are open longer than that end when they end: programs may sleep in them.
const MOST: Duration = Duration::from_millis(100);

/// What keeps the next probes from waiting.
pub(super) struct AheadOfWindows {
    /// None without windows, and where the kernel has refused.
    file: Option<Ahead>,
    links: Vec<Link>,
    /// The process whose window it is for, since when, and when it is seen to next.
    stay: Option<Stay>,
}

#[derive(Clone, Copy)]
struct Stay {
    slot: u32,
    since: Instant,
    next: Instant,
}

impl AheadOfWindows {
    /// Where there may be windows, or not.
    pub(super) fn new(are_windows: bool) -> AheadOfWindows {
        let file = are_windows.then(Ahead::new).and_then(|made| {
            made.inspect_err(|error| tracing::warn!("windows begin and end late: {error:#}")).ok()
        });
        AheadOfWindows { file, links: Vec::new(), stay: None }
    }

    /// How long the worker may wait for something else.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.stay.map(|stay| stay.next.saturating_duration_since(Instant::now()))
    }
}

impl Worker {
    /// A window of a process is about to be attached: what the kernel waits for first is over when this returns.
    pub(super) fn get_ahead(&mut self, slot: u32) {
        let now = Instant::now();
        self.ahead.stay = Some(Stay { slot, since: now, next: now });
        self.wait_ahead(slot);
    }

    /// The same where it was waited for long ago, or not at all.
    pub(super) fn get_ahead_again(&mut self, slot: u32) {
        if self.ahead.stay.is_none() {
            self.get_ahead(slot);
        }
    }

    /// While a window is open its probes are to go at once, too.
    pub(super) fn stay_ahead(&mut self) {
        let Some(stay) = self.ahead.stay else { return };
        let now = Instant::now();
        let is_open = |duties: &Duties| self.cycles.keys().any(|slot| duties.is_probed(*slot));
        if now - stay.since > MOST || !self.kernel.duties.as_ref().is_some_and(is_open) {
            self.ahead.stay = None;
            let links = std::mem::take(&mut self.ahead.links);
            self.close_for(stay.slot, links);
        } else if now >= stay.next {
            self.wait_ahead(stay.slot);
        }
    }

    fn wait_ahead(&mut self, slot: u32) {
        let before = self.attaching_ns();
        let Worker { ahead, kernel, .. } = self;
        let made = ahead.file.as_ref().map(|file| file.wait(kernel));
        let links = match made {
            Some(Ok(links)) => std::mem::replace(&mut ahead.links, links),
            Some(Err(error)) => {
                tracing::warn!("windows begin and end late: {error:#}");
                ahead.file = None;
                std::mem::take(&mut ahead.links)
            }
            None => Vec::new(),
        };
        let attach_ns = self.attaching_ns().saturating_sub(before);
        if let Some(stay) = &mut self.ahead.stay {
            stay.next = Instant::now() + PAUSE;
        }
        if let Some(cycle) = self.cycles.get_mut(&slot) {
            cycle.attach_ns += attach_ns;
        }
        self.close_for(slot, links);
    }

    /// Closes links at the cost of a process's windows.
    fn close_for(&mut self, slot: u32, links: Vec<Link>) {
        let spent_ns = self.cycles.get(&slot).map(|of| Arc::clone(&of.detach_ns));
        self.close_counting(links, &spent_ns.unwrap_or_default());
    }
}
