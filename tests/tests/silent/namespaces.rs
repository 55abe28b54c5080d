//! A samplerd in a pid namespace of its own.
