//! Messages of the file formats that use protobuf, generated from `proto/formats/`.
//!
//! Each schema in that folder has the parts of a public schema that our files use, and names the
//! public schema's place.

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
