//! Programs whose code in memory differs from its file.
