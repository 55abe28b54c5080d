//! The messages of the file formats that are made of protobuf, generated from `proto/formats/`.
//!
//! Each schema there has the parts of a public one that our files use, and names where that one is.

// The documentation is in the schemas.
#![allow(missing_docs)]

/// OpenTelemetry's profiles.
pub mod otlp {
    include!(concat!(env!("OUT_DIR"), "/otlp.rs"));
}

/// Perfetto's traces.
pub mod perfetto {
    include!(concat!(env!("OUT_DIR"), "/perfetto.rs"));
}

/// pprof's profiles.
pub mod pprof {
    include!(concat!(env!("OUT_DIR"), "/pprof.rs"));
}
