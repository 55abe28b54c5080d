//! Processes that nobody asked to profile.
