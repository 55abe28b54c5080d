//! Allocators that no dynamic symbol names.
