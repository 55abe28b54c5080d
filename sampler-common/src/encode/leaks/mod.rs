//! Stacks whose held bytes grow: a list for people, json for programs.

mod json;
mod text;

pub use json::object;
pub use text::{answer, site, text};

#[cfg(test)]
mod tests;
