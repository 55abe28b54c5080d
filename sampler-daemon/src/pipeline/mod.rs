//! From ring records to rows. One thread, the worker, owns the kernel side and the store.
//! All other threads ask the worker by messages.
//! Symbolization has a thread of its own, so that it never delays ingestion.

mod arrivals;
mod attach;
mod balance;
mod bounds;
mod captured_stack;
mod clock;
mod collect;
mod command;
mod config;
mod cost;
mod coverage;
mod detach;
mod epochs;
mod event_loop;
mod exclude;
mod facts;
mod file_closer;
mod follow;
mod forecast;
mod heartbeat;
mod held_at_exit;
mod hits;
mod images;
mod ingest;
mod injected;
mod injections;
mod latency;
mod library_settings;
mod mapped;
mod observe;
mod overhead_budget;
mod patched;
mod pressure;
mod process;
mod process_events;
mod python;
mod query;
mod reading;
#[cfg(test)]
mod recorded;
mod refused;
mod report;
mod sampling;
mod schedule;
mod self_sampled;
mod source;
mod stack_cache;
mod stale_returns;
mod survey;
mod thread;
mod totals;
mod tree;
mod unseen_calls;
mod windows;
mod work;
mod worker;

pub use attach::AttachError;
pub use command::{
    PressureReport, ProcessReport, ProfileRequest, Profiler, SamplingChange, SamplingReport,
    Stopped,
};
pub use config::{AttachMode, Config};
pub use cost::{Prices, UnreadCost};
pub use exclude::Exclusion;
pub use heartbeat::Heartbeat;
pub use held_at_exit::AtExit;
pub use injections::Injecting;
pub use latency::Histogram;
pub use process_events::EventCounts;
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
