//! The API over TLS: clients with a certificate of the right authority are served, and nobody else.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::{Finished, finish};
use sampler_tests::daemon::samplerd;
use sampler_tests::tls::certify;
use sampler_tests::{Daemon, Workload, build};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A folder with an authority, and a certificate with its key.
fn certificates() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    certify(folder.path())?;
    Ok(folder)
}

/// Options of a samplerd with the certificate of a folder, whose clients the folder's authority
/// certifies.
fn options(folder: &Path) -> Vec<String> {
    let files =
        [("--tls-cert", "certificate"), ("--tls-key", "key"), ("--tls-client-ca", "authority")];
    let option =
        |(option, name): (&str, &str)| [option.to_owned(), folder.join(name).display().to_string()];
    files.into_iter().flat_map(option).collect()
}

/// `sampler status` of a client that trusts the authority in `trusted` and has the certificate in
/// `own`.
fn status(address: &str, trusted: &Path, own: &Path) -> Result<Finished> {
    let mut command = Command::new(build::program("sampler")?);
    command.args(["--connect", address, "status"]);
    command.env("SAMPLER_TLS_CA", trusted.join("authority"));
    command.env("SAMPLER_TLS_CERT", own.join("certificate"));
    command.env("SAMPLER_TLS_KEY", own.join("key"));
    finish(&mut command)
}

/// The one line of a command that failed.
fn line(finished: &Finished) -> Result<&str> {
    let line = finished.stderr.trim_end();
    ensure!(finished.status.code() == Some(1) && line.lines().count() == 1, "{line}");
    Ok(line)
}

#[test]
fn only_clients_with_a_certificate_are_served() -> Result<()> {
    let (ours, other) = (certificates()?, certificates()?);
    let (ours, other) = (ours.path(), other.path());
    let workload = Workload::edge(&["odd"])?;
    let options = options(ours);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let daemon = Daemon::start_at("tls:127.0.0.1:0", &[workload.pid()], &options)?;
    // The certificate is one for this name.
    let address = &daemon.address.replace("127.0.0.1", "localhost");
    let served = status(address, ours, ours)?.success("a client with a certificate")?;
    ensure!(String::from_utf8_lossy(&served.stdout).contains(&daemon.pid().to_string()));

    let stranger = status(address, ours, other)?;
    ensure!(line(&stranger)?.contains("SAMPLER_TLS_CERT"), "{}", stranger.stderr);
    let impostor = status(address, other, ours)?;
    ensure!(line(&impostor)?.contains("invalid peer certificate"), "{}", impostor.stderr);
    let another_name = status(&daemon.address, ours, ours)?;
    ensure!(line(&another_name)?.contains("invalid peer certificate"), "{}", another_name.stderr);
    for (scheme, reason) in [("tcp:", "is it samplerd"), ("tls:", "SAMPLER_TLS_CA is not set")] {
        let address = address.replace("tls:", scheme);
        let mut sampler = Command::new(build::program("sampler")?);
        let refused = finish(sampler.args(["--connect", &address, "status"]))?;
        ensure!(line(&refused)?.contains(reason), "{}", refused.stderr);
    }
    // A client that has no certificate at all, and one that does not begin a handshake.
    let place = address.strip_prefix("tls:").context("no TLS address")?;
    let mut openssl = Command::new("openssl");
    let bare = finish(openssl.args(["s_client", "-connect", place, "-brief", "-quiet"]))?;
    ensure!(!bare.status.success(), "a client without a certificate ended well");
    drop(TcpStream::connect(place)?);
    status(address, ours, ours)?.success("a client with a certificate")?;
    daemon.stop()
}

#[test]
fn unusable_files_are_refused_at_the_start() -> Result<()> {
    let (folder, other) = (certificates()?, certificates()?);
    let options = options(folder.path());
    let workload = Workload::edge(&["odd"])?;
    let pid = workload.pid().to_string();
    let start = |options: &[String]| -> Result<Finished> {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        samplerd(&[&["--listen", "tls:127.0.0.1:0", "--pid", &pid], &options[..]].concat())
    };
    let with = |name: &str, contents: &[u8], mode: u32| -> Result<Finished> {
        let file = folder.path().join("file");
        fs::write(&file, contents)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        let at = options.iter().position(|of| of == name).context("no such option")?;
        let mut options = options.clone();
        options[at + 1] = file.display().to_string();
        start(&options)
    };
    for name in ["--tls-cert", "--tls-key", "--tls-client-ca"] {
        let refused = with(name, b"no certificate", 0o600)?;
        ensure!(line(&refused)?.contains(name), "{}", refused.stderr);
        let at = options.iter().position(|of| of == name).context("no such option")?;
        let fewer = start(&[&options[..at], &options[at + 2..]].concat())?;
        ensure!(fewer.status.code() == Some(2) && fewer.stderr.contains(name), "{}", fewer.stderr);
    }
    let own = fs::read(folder.path().join("key"))?;
    ensure!(line(&with("--tls-key", &own, 0o644)?)?.contains("chmod 600"));
    let key = fs::read(other.path().join("key"))?;
    ensure!(line(&with("--tls-key", &key, 0o600)?)?.contains("--tls-key"));
    let plain = samplerd(&["--pid", &pid, "--tls-key", "key.pem"])?;
    let is_refused = plain.status.code() == Some(2) && plain.stderr.contains("has no TLS");
    ensure!(is_refused, "{}", plain.stderr);
    Ok(())
}
