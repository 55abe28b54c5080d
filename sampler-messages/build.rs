//! Generates the messages.

use std::path::Path;

const FORMATS: [&str; 3] = ["otlp.proto", "perfetto.proto", "pprof.proto"];

fn main() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/formats");
    println!("cargo::rerun-if-changed={}", include.display());
    let descriptors = protox::compile(FORMATS, [include]).expect("compile the formats");
    prost_build::Config::new().compile_fds(descriptors).expect("generate the messages");
}
