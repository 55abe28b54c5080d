//! Unwinds stack snapshots of processes by the `.eh_frame` of their modules.
//!
//! [`Modules`] holds the mapped files (one table for the daemon), and an [`Image`] is one process's
//! view of them. Names are left to [`crate::symbolize`].

mod cfi;
mod code;
mod elf;
mod evidence;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod generated;
pub mod history;
pub mod image;
pub mod module;
pub mod modules;
pub mod python;
#[cfg(test)]
mod real_programs;
mod snapshot;
mod step;
#[cfg(test)]
mod tests;

pub use cfi::cache::MAX_UNWIND_BYTES;
pub use evidence::Evidence;
pub use generated::GeneratedCode;
pub use generated::name_budget::MAX_NAME_BYTES;
pub use history::{History, PastImage};
pub use image::place::Address;
pub use image::{Image, UnwindEnd};
pub use module::{CodeSegment, Frame, Life, Module, ModuleId, ModuleKind};
pub use modules::{Counts, Modules};
pub use python::{Merged, NativeFrames, Python, PythonError, PythonLines};
pub use snapshot::{Registers, StackMemory};
