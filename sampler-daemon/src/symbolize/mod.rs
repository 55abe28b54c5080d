//! Names for frames: functions, files, lines, inlined calls. Lazily, in batches, cached.

pub mod symbolizer;

pub use symbolizer::Symbolizer;
