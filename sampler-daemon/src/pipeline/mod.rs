//! From ring records to rows. One thread, the worker, owns the kernel side and the store.
//! All other threads ask the worker by messages.
//! Symbolization has a thread of its own, so that it never delays ingestion.

mod balance;
mod bounds;
mod clock;
mod collect;
mod command;
mod config;
mod cost;
mod event_loop;
mod heartbeat;
mod latency;
mod library;
mod observe;
mod processes;
mod query;
mod rates;
#[cfg(test)]
mod recorded;
mod records;
mod report;
mod source;
mod thread;
mod totals;
mod unseen_calls;
mod windows;
mod worker;

pub use command::{
    PressureReport, ProcessReport, ProfileRequest, Profiler, SamplingChange, SamplingReport,
    Stopped,
};
pub use config::{AttachMode, Config};
pub use cost::{Prices, UnreadCost};
pub use heartbeat::Heartbeat;
pub use latency::Histogram;
pub use library::injections::Injecting;
pub use processes::attach::AttachError;
pub use processes::exclude::Exclusion;
pub use processes::process_events::EventCounts;
pub use records::held_at_exit::AtExit;
pub use report::history::{HistoryRequest, HistoryWindow};
pub use report::leaks::{LeaksRequest, RawLeaks, assemble_leaks};
pub use report::lifetimes::{LifetimesRequest, RawLifetimes, assemble_lifetimes};
pub use report::listing::{GroupBy, GroupReport, ListRequest, Listing, ProcessSums};
pub use report::losses::RawLoss;
pub use report::metrics::{MetricsReport, ProcessMetrics};
pub use report::names::Names;
pub use report::profile::assemble;
pub use report::profile::locations;
pub use report::raw::{Program, RawFrame, RawProfile, RawRow};
pub use report::scope::{Border, Borders, RequestedWindow, Scope};
pub use report::status::{ProbeReport, StatusReport};
pub use report::usable::Usable;
pub use source::SampleEvent;
pub use thread::WorkerThread;
pub use worker::start;
