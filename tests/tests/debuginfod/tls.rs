//! A debuginfod server with TLS, whose certificate is signed by the test's own authority.

use super::{Stripped, first, is_named, until_note};
use anyhow::{Result, ensure};
use sampler_tests::child::Child;
use sampler_tests::tls::certify;
use std::fs;
use std::process::{Command, Stdio};

/// Serves the files of its working directory, and prints its port.
const SERVER: &str = "import http.server, ssl\n\
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
    context.load_cert_chain('certificate', 'key')\n\
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
    server.socket = context.wrap_socket(server.socket, server_side=True)\n\
    print(server.server_port, flush=True)\n\
    server.serve_forever()\n";

#[test]
fn names_come_over_tls_from_certified_servers_only() -> Result<()> {
    let mut stripped = Stripped::start()?;
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    certify(place)?;
    let folder = place.join("buildid").join(&stripped.build_id);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("debuginfo"), &stripped.debug_file)?;
    // The client runs as another user, and must be able to read the certificate.
    fs::set_permissions(place, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut python = Command::new("python3");
    // The server would log each request.
    python.stderr(Stdio::null());
    let mut server = Child::start("python3", python.args(["-c", SERVER]).current_dir(place))?;
    let url = format!("https://localhost:{}", server.line()?);
    stripped.workload.go()?;
    let daemon = stripped.daemon(&url)?;
    first(&daemon)?;
    let profile = until_note(&daemon, "UnknownIssuer")?;
    ensure!(!is_named(&profile), "{}", profile.folded());
    daemon.stop()?;
    let authority = place.join("authority");
    let daemon = stripped.daemon_with(&url, &[("SSL_CERT_FILE", &authority)])?;
    daemon.profile_where("names", "alloc", &[], is_named)?;
    daemon.stop()
}
