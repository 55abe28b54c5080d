//! Answers to requests. Answers only read: acting needs the worker mutably, which no method in this
//! directory has.

pub(in crate::pipeline) mod capabilities;
pub(in crate::pipeline) mod gather;
pub(in crate::pipeline) mod gather_epochs;
pub(in crate::pipeline) mod history;
pub(in crate::pipeline) mod leaks;
pub(in crate::pipeline) mod lifetimes;
pub(in crate::pipeline) mod listing;
pub(in crate::pipeline) mod losses;
pub(in crate::pipeline) mod mapped_profile;
pub(in crate::pipeline) mod metrics;
pub(in crate::pipeline) mod names;
pub(in crate::pipeline) mod notes;
pub(in crate::pipeline) mod order;
pub(in crate::pipeline) mod profile;
pub(in crate::pipeline) mod raw;
pub(in crate::pipeline) mod scope;
pub(in crate::pipeline) mod select;
pub(in crate::pipeline) mod status;
pub(in crate::pipeline) mod summed;
pub(in crate::pipeline) mod usable;

use super::command::Command;
use super::worker::Worker;

impl Worker {
    /// Answers a request from present data, and only reads. [`Worker::read_until_now_for`] has read
    /// the records that the request needs.
    // The end-to-end test of requests probes this function by its symbol.
    #[inline(never)]
    pub(super) fn answer(&self, command: Command) {
        // A client that has gone away needs no answer.
        match command {
            Command::Status(reply) => drop(reply.send(Ok(self.status()))),
            Command::Processes(request, reply) => drop(reply.send(self.listing(&request))),
            Command::Profile(request, reply) => drop(reply.send(self.profile(request))),
            Command::History(request, reply) => drop(reply.send(self.history(&request))),
            Command::Lifetimes(request, reply) => drop(reply.send(self.lifetimes(request))),
            Command::Leaks(request, reply) => drop(reply.send(self.leaks(request))),
            Command::Metrics(reply) => drop(reply.send(Ok(self.metrics()))),
            Command::SetSampling { .. } | Command::Stop => {}
        }
    }
}
