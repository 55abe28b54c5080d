//! The API over TLS: clients with a certificate of the right authority are served, and nobody else.

use anyhow::{Context as _, Result, ensure};
use sampler_tests::child::{Finished, finish};
use sampler_tests::daemon::samplerd;
use sampler_tests::{Daemon, Workload, build};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Authorities, certificates and keys: `NAME.pem` and `NAME.key` in a directory.
struct Certificates(TempDir);

impl Certificates {
    /// The authorities `ours` and `other`. The first one certifies `samplerd` and `client`, the
    /// second one `stranger`.
    fn make() -> Result<Certificates> {
        let all = Certificates(tempfile::tempdir()?);
        for authority in ["ours", "other"] {
            all.request(authority, &["-x509", "-days", "2"])?;
        }
        for (name, authority) in [("samplerd", "ours"), ("client", "ours"), ("stranger", "other")] {
            let (certificate, key) = (all.file(authority, "pem"), all.file(authority, "key"));
            all.request(
                name,
                &[
                    "-x509",
                    "-days",
                    "2",
                    "-CA",
                    &certificate,
                    "-CAkey",
                    &key,
                    "-addext",
                    "subjectAltName=IP:127.0.0.1",
                    "-addext",
                    "basicConstraints=critical,CA:FALSE",
                ],
            )?;
        }
        Ok(all)
    }

    /// Makes a key and a certificate.
    fn request(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("openssl");
        command.args(["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]);
        command.args(["-subj", &format!("/CN={name}")]).args(arguments);
        let (certificate, key) = (self.file(name, "pem"), self.file(name, "key"));
        command.args(["-out", &certificate, "-keyout", &key]);
        finish(&mut command)?.success("openssl req").map(drop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, kind: &str) -> String {
        self.path(&format!("{name}.{kind}")).display().to_string()
    }

    /// Options of a samplerd whose clients `ours` certifies.
    fn options(&self) -> Vec<String> {
        let files = [
            ("--tls-cert", self.file("samplerd", "pem")),
            ("--tls-key", self.file("samplerd", "key")),
            ("--tls-client-ca", self.file("ours", "pem")),
        ];
        files.into_iter().flat_map(|(option, file)| [option.to_owned(), file]).collect()
    }

    /// `sampler status` of a client that trusts `authority` and has the certificate of `client`.
    fn status(&self, address: &str, authority: &str, client: &str) -> Result<Finished> {
        let mut command = Command::new(build::program("sampler")?);
        command.args(["--connect", address, "status"]);
        command.env("SAMPLER_TLS_CA", self.file(authority, "pem"));
        command.env("SAMPLER_TLS_CERT", self.file(client, "pem"));
        command.env("SAMPLER_TLS_KEY", self.file(client, "key"));
        finish(&mut command)
    }
}

/// The one line of a command that failed.
fn line(finished: &Finished) -> Result<&str> {
    let line = finished.stderr.trim_end();
    ensure!(finished.status.code() == Some(1) && line.lines().count() == 1, "{line}");
    Ok(line)
}

#[test]
fn only_clients_with_a_certificate_are_served() -> Result<()> {
    let all = Certificates::make()?;
    let workload = Workload::edge(&["odd"])?;
    let options = all.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let daemon = Daemon::start_at("tls:127.0.0.1:0", &[workload.pid()], &options)?;
    let address = &daemon.address;
    let served = all.status(address, "ours", "client")?.success("a client with a certificate")?;
    let text = String::from_utf8_lossy(&served.stdout);
    ensure!(text.contains(&workload.pid().to_string()), "{text}");

    let stranger = all.status(address, "ours", "stranger")?;
    ensure!(line(&stranger)?.contains(address.as_str()), "{}", stranger.stderr);
    let impostor = all.status(address, "other", "client")?;
    ensure!(line(&impostor)?.contains("certificate"), "{}", impostor.stderr);
    let plain = address.replace("tls:", "tcp:");
    let plain =
        finish(Command::new(build::program("sampler")?).args(["--connect", &plain, "status"]))?;
    line(&plain)?;
    let mut without = Command::new(build::program("sampler")?);
    let without = finish(without.args(["--connect", address, "status"]))?;
    ensure!(line(&without)?.contains("SAMPLER_TLS_CA"), "{}", without.stderr);
    // A client that has no certificate at all, and one that does not finish its handshake.
    let place = address.strip_prefix("tls:").context("no TLS address")?;
    let mut openssl = Command::new("openssl");
    let bare = finish(openssl.args(["s_client", "-connect", place, "-brief", "-quiet"]))?;
    ensure!(!bare.status.success(), "a client without a certificate ended well");
    drop(std::net::TcpStream::connect(place)?);
    all.status(address, "ours", "client")?.success("a client with a certificate")?;
    daemon.stop()
}

#[test]
fn unusable_files_are_refused_at_the_start() -> Result<()> {
    let all = Certificates::make()?;
    let options = all.options();
    let workload = Workload::edge(&["odd"])?;
    let pid = workload.pid().to_string();
    let start = |options: &[String]| -> Result<Finished> {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        samplerd(&[&["--listen", "tls:127.0.0.1:0", "--pid", &pid], &options[..]].concat())
    };
    let with = |name: &str, contents: &[u8]| -> Result<Finished> {
        fs::write(all.path("file"), contents)?;
        fs::set_permissions(all.path("file"), fs::Permissions::from_mode(0o600))?;
        let at = options.iter().position(|of| of == name).context("no such option")?;
        let mut options = options.clone();
        options[at + 1] = all.path("file").display().to_string();
        start(&options)
    };
    for name in ["--tls-cert", "--tls-key", "--tls-client-ca"] {
        let refused = with(name, b"no certificate")?;
        ensure!(line(&refused)?.contains(&format!("{name} ")), "{}", refused.stderr);
        let at = options.iter().position(|of| of == name).context("no such option")?;
        let fewer = [&options[..at], &options[at + 2..]].concat();
        let fewer = start(&fewer)?;
        ensure!(fewer.status.code() == Some(2) && fewer.stderr.contains(name), "{}", fewer.stderr);
    }
    let other = fs::read(all.path("client.key"))?;
    ensure!(line(&with("--tls-key", &other)?)?.contains("--tls-key"));
    let key: &Path = &all.path("samplerd.key");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644))?;
    ensure!(line(&start(&options)?)?.contains("everybody can read the key"));
    let plain = samplerd(&["--pid", "1", "--tls-key", &all.file("samplerd", "key")])?;
    ensure!(
        plain.status.code() == Some(2) && plain.stderr.contains("has no TLS"),
        "{}",
        plain.stderr
    );
    Ok(())
}
