//! The kernel side: loading, attaching, maps and the ring buffer.
