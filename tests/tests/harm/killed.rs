//! A samplerd that is killed leaves nothing behind.
