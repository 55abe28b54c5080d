//! Certificates of a test's own authority, and a server of TLS before one without.

use anyhow::{Context as _, Result, ensure};
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Makes `authority`, and `certificate` with `key` for `localhost`, in a folder.
pub fn certify(directory: &Path) -> Result<()> {
    fs::write(
        directory.join("names"),
        "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n",
    )?;
    for arguments in [
        "req -x509 -newkey rsa:2048 -nodes -keyout authority-key -out authority -subj /CN=authority -addext basicConstraints=critical,CA:TRUE",
        "req -newkey rsa:2048 -nodes -keyout key -out request -subj /CN=localhost",
        "x509 -req -in request -CA authority -CAkey authority-key -set_serial 1 -out certificate -extfile names",
    ] {
        let mut openssl = Command::new("openssl");
        let output = openssl.args(arguments.split(' ')).current_dir(directory).output();
        let output = output.context("run openssl (apt-get install openssl)")?;
        ensure!(output.status.success(), "openssl {arguments}: {output:?}");
    }
    fs::set_permissions(directory.join("key"), Permissions::from_mode(0o600)).context("key")
}

/// A server with the `certificate` of a folder, that passes everything on to a server without TLS.
/// It ends with the test.
pub struct Front {
    /// Port on `localhost`.
    pub port: u16,
}

impl Front {
    /// Starts the server. `requests_certificate`: it accepts only clients that the folder's
    /// `authority` has certified.
    pub fn start(directory: &Path, to: SocketAddr, requests_certificate: bool) -> Result<Front> {
        let acceptor = TlsAcceptor::from(Arc::new(config(directory, requests_certificate)?));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listen")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("start a runtime")?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    tokio::spawn(pass_on(acceptor.clone(), stream, to));
                }
                #[expect(unreachable_code, reason = "names the type of the errors")]
                anyhow::Ok(())
            })
        });
        Ok(Front { port })
    }
}

async fn pass_on(acceptor: TlsAcceptor, stream: TcpStream, to: SocketAddr) -> Result<()> {
    let mut from = acceptor.accept(stream).await?;
    let mut to = TcpStream::connect(to).await?;
    tokio::io::copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

fn config(directory: &Path, requests_certificate: bool) -> Result<ServerConfig> {
    let provider = Arc::new(default_provider());
    let read = |name: &str| fs::read(directory.join(name)).context(name.to_owned());
    let certificates = |name: &str| -> Result<Vec<CertificateDer<'static>>> {
        Ok(CertificateDer::pem_slice_iter(&read(name)?).collect::<Result<_, _>>()?)
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = if requests_certificate {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates("authority")?);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_slice(&read("key")?)?;
    let mut config = builder.with_single_cert(certificates("certificate")?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
