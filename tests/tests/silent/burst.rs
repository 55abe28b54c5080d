//! A burst of samples from a process that samples by itself.
