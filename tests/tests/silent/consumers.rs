//! Other programs that read our profiles and our API.

use anyhow::{Context, Result, ensure};
use sampler_tests::child::finish;
use sampler_tests::client::{Client, Reflection};
use sampler_tests::raw_grpc::{RawGrpc, header_block};
use sampler_tests::{Daemon, Workload, build};
use std::path::Path;
use std::process::Command;

/// Layouts that linkers make: code in a segment of its own, at fixed addresses, in one segment with
/// the headers, without a loader.
const LAYOUTS: [&[&str]; 4] = [&[], &["-no-pie"], &["-Wl,-z,noseparate-code"], &["-static"]];

/// All services of samplerd.
const SERVICES: [&str; 4] = [
    "sampler.v1.Sampler",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

/// Number of blocks of 64 bytes that the workload keeps.
const KEPT: &str = "1000";

/// Writes this program's heap as a file for other tools. Returns the paths of the file and of the
/// program.
fn written(flags: &[&str], directory: &Path) -> Result<[String; 2]> {
    let program = build::compile("edges.c", flags)?;
    let mut workload = Workload::start_program(&program, &["keep", KEPT])?;
    let daemon = Daemon::start(&[workload.pid()], &["--interval", "1", "--ring", "64MiB"])?;
    workload.go()?;
    workload.truth()?;
    let file = directory.join("heap");
    let paths = [&file, &program].map(|path| path.to_str().map(str::to_owned));
    let [Some(file), Some(program)] = paths else { anyhow::bail!("a path is not UTF-8") };
    let arguments = ["profile", "--kind", "live", "--format", "jeprof", "-o", &file];
    daemon.sampler(&arguments)?.success("jeprof")?;
    workload.exit()?;
    daemon.stop()?;
    Ok([file, program])
}

/// Checks that a tool names the functions of the stack, and no other function of the program.
fn names(tool: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(tool);
    let text = finish(command.args(arguments))?.success(tool)?.stdout;
    let text = String::from_utf8_lossy(&text);
    for function in ["case_keep", "many_kept"] {
        let is_named = text.lines().any(|line| line.split_whitespace().any(|of| of == function));
        ensure!(is_named, "{tool} {arguments:?} does not name {function}:\n{text}");
    }
    Ok(())
}

#[test]
fn tools_name_functions_by_where_code_is_mapped() -> Result<()> {
    for flags in LAYOUTS {
        let directory = tempfile::tempdir()?;
        let [file, program] = written(flags, directory.path())?;
        let go = ["tool", "pprof", "-top", "-sample_index=inuse_space", &file];
        names("go", &go).with_context(|| format!("{flags:?}"))?;
        for tool in ["jeprof", "google-pprof"] {
            let arguments = ["--text", "--inuse_space", &program, &file];
            names(tool, &arguments).with_context(|| format!("{flags:?}"))?;
        }
    }
    Ok(())
}

/// gRPC's core sends the path of a Unix socket as the authority, with `%2F` for each slash. Other
/// clients send the plain path.
#[test]
fn clients_that_name_the_socket_by_its_path_are_answered() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    let path = daemon.socket().display().to_string();
    let escaped = path.trim_start_matches('/').replace('/', "%2F");
    // The name of the header as text, and by its index in the static table, with and without
    // indexing for later calls.
    for name in [&b"@\x0a:authority"[..], b"\x41", b"\x01", b"\x11"] {
        for authority in [&escaped, &path, "localhost", "127.0.0.1:50051"] {
            let mut client = RawGrpc::connect(&daemon.socket())?;
            for method in ["/grpc.health.v1.Health/Check", "/sampler.v1.Sampler/Status"] {
                let block = header_block(method, (name, authority))?;
                let answer = client.call(&block).with_context(|| format!("{authority:?}"))?;
                ensure!(!answer.is_empty(), "{method} answers nothing to {authority:?}");
            }
        }
    }
    daemon.stop()
}

/// A client that supports one version of reflection finds all services.
#[tokio::test]
async fn both_versions_of_reflection_are_served() -> Result<()> {
    let workload = Workload::edge(&["odd"])?;
    let daemon = Daemon::start(&[workload.pid()], &[])?;
    for version in [Reflection::V1, Reflection::V1Alpha] {
        let mut client = Client::connect(&daemon.address).await?.by(version);
        let services = client.services().await?;
        for service in SERVICES {
            let is_there = services.iter().any(|name| name == service);
            ensure!(is_there, "{version:?}: no {service} in {services:?}");
            client.learn(service).await.with_context(|| format!("{version:?}: {service}"))?;
        }
    }
    daemon.stop()
}
