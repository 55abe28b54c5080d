//! From ring records to rows: one thread owns the kernel side and the store; everybody else asks it
//! by messages. Symbolization has a thread of its own, so that it never holds up ingestion.

mod attach;
mod balance;
mod command;
mod ingest;
mod names;
mod profile;
mod query;
mod status;
mod worker;

pub use attach::AttachError;
pub use command::{ProcessReport, ProfileRequest, Profiler, Stopped};
pub use ingest::SampleEvent;
pub use names::Names;
pub use profile::assemble;
pub use query::{RawFrame, RawLoss, RawProfile};
pub use status::{ProbeReport, StatusReport};
pub use worker::{Config, WorkerThread, start};
