//! `--export otlp+https`, `otlp+grpcs`: only certified servers get profiles, and servers may ask
//! for samplerd's own certificate.

use super::{adds_up, counts_where, exporting, is_refused, ticking};
use anyhow::{Result, ensure};
use sampler_tests::collector::{Collector, Taken};
use sampler_tests::tls::{Front, certify};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Waits for two windows.
fn windows_arrive(collector: &Collector) -> Result<Taken> {
    collector.taken_where("two windows", |taken| {
        taken.windows("alloc_space").is_ok_and(|windows| windows.len() > 1)
    })
}

#[test]
fn certified_servers_alone_get_profiles() -> Result<()> {
    let directory = tempfile::tempdir()?;
    certify(directory.path())?;
    let authority = text(&directory.path().join("authority"));
    for (scheme, collector) in
        [("otlp+https", Collector::start()?), ("otlp+grpcs", Collector::start_grpc()?)]
    {
        let front = Front::start(directory.path(), collector.address, false)?;
        let workload = ticking()?;
        let url = format!("{scheme}://localhost:{}", front.port);
        // This system does not trust the authority.
        let daemon = exporting(&[workload.pid()], &url, &[])?;
        let failed = counts_where(&daemon, "a failure", |of| of["retried"].as_u64() > Some(0))?;
        let why = failed["last_error"].to_string();
        ensure!(why.contains("UnknownIssuer") && why.contains("--export-ca"), "{scheme}: {failed}");
        daemon.stop()?;
        // The certificate is for another name.
        let other = format!("{scheme}://127.0.0.1:{}", front.port);
        let daemon = exporting(&[workload.pid()], &other, &["--export-ca", &authority])?;
        let failed = counts_where(&daemon, "a failure", |of| of["retried"].as_u64() > Some(0))?;
        let why = failed["last_error"].to_string();
        ensure!(why.contains("not valid for name"), "{scheme}: {failed}");
        ensure!(collector.received().is_empty(), "{scheme}: something got through");
        daemon.stop()?;
        let daemon = exporting(&[workload.pid()], &url, &["--export-ca", &authority])?;
        windows_arrive(&collector)?;
        let counts = counts_where(&daemon, "an empty queue", |of| of["waiting"] == 0)?;
        adds_up(&counts)?;
        ensure!(counts["retried"] == 0 && counts["last_error"].is_null(), "{counts}");
        daemon.stop()?;
    }
    Ok(())
}

#[test]
fn a_server_that_asks_gets_our_certificate() -> Result<()> {
    let directory = tempfile::tempdir()?;
    certify(directory.path())?;
    let of = |name: &str| text(&directory.path().join(name));
    let collector = Collector::start()?;
    let front = Front::start(directory.path(), collector.address, true)?;
    let workload = ticking()?;
    let url = format!("otlp+https://localhost:{}", front.port);
    let authority = of("authority");
    let known = ["--export-ca", authority.as_str()];
    let daemon = exporting(&[workload.pid()], &url, &known)?;
    let failed = counts_where(&daemon, "a failure", |of| of["retried"].as_u64() > Some(0))?;
    ensure!(failed["sent"] == 0 && failed["last_error"].is_string(), "{failed}");
    ensure!(collector.received().is_empty(), "something got through");
    daemon.stop()?;
    let (certificate, key) = (of("certificate"), of("key"));
    let own = ["--export-cert", &certificate, "--export-key", &key];
    let daemon =
        exporting(&[workload.pid()], &url, &[known, [own[0], own[1]], [own[2], own[3]]].concat())?;
    windows_arrive(&collector)?;
    daemon.stop()
}

#[test]
fn files_of_tls_that_do_not_fit_are_refused() -> Result<()> {
    let [directory, other] = [tempfile::tempdir()?, tempfile::tempdir()?];
    certify(directory.path())?;
    certify(other.path())?;
    let of = |name: &str| text(&directory.path().join(name));
    let url = "otlp+https://localhost";
    let (certificate, key) = (of("certificate"), of("key"));
    is_refused(&["--export", url, "--export-cert", &certificate], 2, "--export-key")?;
    is_refused(
        &["--export", "otlp+http://x", "--export-ca", &certificate],
        2,
        "no --export has TLS",
    )?;
    is_refused(&["--export", url, "--export-ca", &of("none")], 1, &of("none"))?;
    is_refused(&["--export", url, "--export-ca", &key], 1, "BEGIN CERTIFICATE")?;
    let with = |key: &str, says: &str| {
        let own = ["--export-cert", &certificate, "--export-key", key];
        is_refused(&[&["--export", url][..], &own].concat(), 1, says)
    };
    with(&text(&other.path().join("key")), "give the certificate of this key")?;
    with(&certificate, "others can read it")?;
    fs::write(of("empty"), "")?;
    fs::set_permissions(of("empty"), Permissions::from_mode(0o600))?;
    with(&of("empty"), "BEGIN PRIVATE KEY")
}
