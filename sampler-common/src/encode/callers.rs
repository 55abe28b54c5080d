//! A stack on one line: `leaf ← caller ← …`.

use super::text::layout::{columns, end, middle};
use super::text::short::short;
use super::{NO_STACK, name};
use crate::profile::is_entry;

/// Columns below which a caller's name is replaced by `…`.
const MIN_NAME: usize = 12;
/// Minimum columns of the first function, even if nothing else fits.
const MIN_FIRST: usize = 24;

/// The functions of a stack in `width` columns, from the first that is no allocator entry to its
/// callers. `frames` has the root first. `place` is where the first function allocates; empty if
/// unknown.
pub(super) fn callers(frames: &[&str], place: &str, width: usize) -> String {
    let leaf_first: Vec<&&str> = frames.iter().rev().collect();
    let own = leaf_first.iter().position(|frame| !is_entry(frame));
    let frames = &leaf_first[own.unwrap_or(leaf_first.len().saturating_sub(1))..];
    let mut out = String::new();
    for (index, frame) in frames.iter().enumerate() {
        let separator = if index == 0 { "" } else { " ← " };
        // Room for the mark of further callers.
        let more = if index + 1 < frames.len() { " ← …" } else { "" };
        let taken = columns(&out) + columns(separator) + columns(more);
        let room = width.saturating_sub(taken);
        let room = if index == 0 { room.min((width * 2 / 3).max(MIN_FIRST)) } else { room };
        let frame = name::shown(frame);
        if index > 0 && room < MIN_NAME.min(columns(&frame)) {
            out += " ← …";
            break;
        }
        out += separator;
        out += &short(&frame, room);
        if index == 0 && !place.is_empty() {
            out += &format!(" {}", end(place, width / 4));
        }
    }
    if out.is_empty() { NO_STACK.to_owned() } else { middle(&out, width) }
}
