//! A comparison of two profiles: a table for people, json for programs.

mod json;
pub(super) mod text;

pub use json::object;
pub use text::text;

#[cfg(test)]
mod tests;
