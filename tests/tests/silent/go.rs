//! Go programs, which are not profiled.
