//! Other programs that read our profiles and our API.
