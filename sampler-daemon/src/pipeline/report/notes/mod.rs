//! Notes of a profile: what its numbers do not contain, and what would make it better.

pub(in crate::pipeline) mod cost_advice;
pub(in crate::pipeline) mod missing;
pub(in crate::pipeline) mod missing_names;
pub(in crate::pipeline) mod raised;
pub(in crate::pipeline) mod rss;
pub(in crate::pipeline) mod unexplained;
pub(in crate::pipeline) mod unnamed_code;
pub(in crate::pipeline) mod windows;
