//! Compiles the protocol and finds the eBPF object that `cargo xtask build-ebpf` made.

use std::path::{Path, PathBuf};
use std::{env, fs};

const PROTO: &str = "sampler/v1/sampler.proto";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let manifest = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let root = Path::new(&manifest).join("..");
    protocol(&root.join("proto"), &out);
    object(&root, &out);
}

fn protocol(include: &Path, out: &Path) {
    println!("cargo::rerun-if-changed={}", include.display());
    let descriptors = protox::compile([PROTO], [include]).expect("compile the protocol");
    fs::write(out.join("sampler_descriptor.bin"), prost::Message::encode_to_vec(&descriptors))
        .expect("write the protocol's descriptors");
    tonic_prost_build::configure().compile_fds(descriptors).expect("generate the protocol");
}

/// The object is copied beside the generated code, so that `include_bytes!` needs no absolute path.
fn object(root: &Path, out: &Path) {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    for name in ["sampler.bpf.o", "bench.bpf.o"] {
        let object = target.join("ebpf").join(name);
        println!("cargo::rerun-if-changed={}", object.display());
        if let Err(error) = fs::copy(&object, out.join(name)) {
            println!(
                "cargo::error=eBPF object {}: {error}; build it first: cargo xtask build-ebpf",
                object.display()
            );
            std::process::exit(1);
        }
    }
}
