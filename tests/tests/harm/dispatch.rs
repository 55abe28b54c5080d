//! Programs under Syscall User Dispatch.
