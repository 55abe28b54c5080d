//! Unwinds stack snapshots of processes by the `.eh_frame` of their modules.

pub mod image;
pub mod module;

pub use image::{Image, Registers, StackMemory, UnwindEnd};
pub use module::{Frame, Module, ModuleId, ModuleKind, Modules};
