//! The gRPC edge: the only module that sees protocol types.

/// The protocol `sampler.v1`, generated.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    tonic::include_proto!("sampler.v1");
}

/// The protocol's descriptors, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sampler_descriptor.bin"));

mod admission;
mod authority;
mod compare;
mod connection;
pub mod convert;
mod histograms;
pub mod listen;
mod plan;
mod reports;
mod select;
pub mod serve;
mod service;
mod shared_answers;
mod stream;
