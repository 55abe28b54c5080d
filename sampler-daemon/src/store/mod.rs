//! Interned stacks, rows, live samples, processes: all bounded.
