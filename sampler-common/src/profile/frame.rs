//! Frames of a stack with the files that contain them.

use super::allocator::is_entry;
use super::{Line, Profile, Stack};

/// A frame with the file that contains it.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    pub(crate) line: &'a Line,
    pub(crate) module: &'a str,
}

/// Frames of a stack, leaf first, inlined ones included.
pub fn leaf_first<'a>(profile: &'a Profile, stack: &'a Stack) -> impl Iterator<Item = Frame<'a>> {
    stack.locations.iter().flat_map(|index| {
        let location = &profile.locations[*index as usize];
        let module = profile.mappings[location.mapping as usize].path.as_str();
        location.lines.iter().map(move |line| Frame { line, module })
    })
}

/// Index of the frame that a stack's bytes are attributed to, leaf first: the first frame that is
/// no allocator's entry point. A stack of entry points only is attributed to its outermost frame.
pub fn own_frame(profile: &Profile, stack: &Stack) -> usize {
    let (mut own, mut frames) = (None, 0usize);
    for frame in leaf_first(profile, stack) {
        if own.is_none() && !is_entry(&frame.line.function) {
            own = Some(frames);
        }
        frames += 1;
    }
    own.unwrap_or(frames.saturating_sub(1))
}
