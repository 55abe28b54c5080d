//! The daemon's data: interned stacks, rows with their moments, live samples, processes. Every
//! table has a bound and a documented behaviour at the bound. The store never does any I/O.

pub mod epochs;
mod fold;
pub mod give_up;
pub mod lifetimes;
pub mod live;
pub mod mapped;
pub mod outcomes;
mod pattern;
pub mod peak;
pub mod process;
mod ring_pressure;
pub mod rows;
pub mod sampling;
mod sampling_record;
pub mod selector;
pub mod sizes;
mod spending;
pub mod stacks;
pub mod window_samples;
pub mod windows;

pub use epochs::Epochs;
pub use fold::{FoldKey, MAX_GROUPS, Moves};
pub use lifetimes::{Life, Lifetimes};
pub use live::{LiveSample, LiveSamples};
pub use mapped::Mapped;
pub use outcomes::Outcomes;
pub use peak::{Peak, Peaks};
pub use process::{
    ClassTotals, LostMoments, Origin, Orphaned, ProcessId, ProcessRecord, Processes,
};
pub use ring_pressure::RingPressure;
pub use rows::{RowKey, Rows};
pub use sampling::Sampling;
pub use sampling_record::{Designs, SamplingRecord};
pub use selector::{Criterion, ProcessIdentity, Selector};
pub use sizes::{SizeCell, SizeLimits};
pub use spending::Spending;
pub use stacks::{StackId, Stacks};
pub use window_samples::WindowSamples;
pub use windows::Windows;
