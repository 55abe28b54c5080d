//! No silent wrong number: a profile holds the truth, or says what it does not know.

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
