//! What is held, compared at two times.
