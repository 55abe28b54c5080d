//! From ring records to rows: one thread owns the kernel side and the store; everybody else asks it
//! by messages. Symbolization has a thread of its own, so that it never holds up ingestion.

mod arrivals;
mod attach;
mod balance;
mod beside;
mod bounds;
mod clock;
mod clusters;
mod command;
mod cost;
mod coverage;
mod detach;
mod duty;
mod epochs;
mod exclude;
mod facts;
mod follow;
mod gather;
mod gather_epochs;
mod happenings;
mod held;
mod hits;
mod images;
mod ingest;
mod lifetimes;
mod listing;
mod losses;
mod mapped;
mod mapped_profile;
mod names;
mod observe;
mod order;
mod pressure;
mod profile;
mod query;
mod raw;
mod sampling;
mod scope;
mod select;
mod shared;
mod source;
mod stale;
mod status;
mod survey;
mod thread;
mod totals;
mod tree;
mod unseen;
mod usable;
mod usdt;
mod work;
mod worker;

pub use attach::AttachError;
pub use command::{
    PressureReport, ProcessReport, ProfileRequest, Profiler, SamplingChange, SamplingReport,
    Stopped,
};
pub use cost::{PricesReport, Unread};
pub use coverage::Blind;
pub use exclude::Exclusion;
pub use happenings::EventCounts;
pub use held::AtExit;
pub use lifetimes::{LifetimesRequest, RawLifetimes, assemble_lifetimes};
pub use listing::{GroupBy, GroupReport, ListRequest, Listing, Sums};
pub use losses::RawLoss;
pub use names::Names;
pub use profile::assemble;
pub use raw::{RawFrame, RawProfile, RawRow};
pub use scope::{AskedWindow, Scope};
pub use source::SampleEvent;
pub use status::{ProbeReport, StatusReport};
pub use thread::WorkerThread;
pub use usable::Usable;
pub use worker::{Config, Reach, start};
