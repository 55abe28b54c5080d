//! No silent wrong number: a profile has the truth, or says what is unknown.

mod burst;
mod consumers;
mod go;
mod growth;
mod hidden;
mod mapped;
mod namespaces;
mod perf_maps;
mod stacks;
mod stalled;
