//! Symbolizes frames of modules whose process may be gone.

use crate::unwind::Module;
use sampler_common::profile::Line;
use std::sync::Arc;

/// Symbolizes; caches by module (build id where there is one) and offset. Lives on one thread.
#[derive(Default)]
pub struct Symbolizer {}

impl Symbolizer {
    /// Lines of each frame `(module, offset as in crate::unwind::Frame)`, in the order asked: innermost inlined
    /// function first, at least one line each; where nothing is known, the function is `basename+0xoffset`.
    pub fn symbolize(&mut self, frames: &[(Arc<Module>, u64)]) -> Vec<Arc<[Line]>> {
        let _ = frames;
        todo!()
    }
}
