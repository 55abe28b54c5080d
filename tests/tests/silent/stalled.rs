//! A samplerd that got no CPU for a while.
