//! Stacks without a search table, and stacks that are cut short.
