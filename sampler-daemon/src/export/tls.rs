//! TLS of connections to backends: which authorities certify a backend, and how samplerd certifies
//! itself.

use crate::secret_file::{read_public, read_secret};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// The files of TLS.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The authorities of backends, in PEM; `None`: those that this system trusts.
    pub authorities: Option<PathBuf>,
    /// samplerd's certificate and those that lead to its authority, and its key, in PEM.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// TLS, ready for connections.
#[derive(Clone)]
pub struct Tls(ClientConfig);

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// One line: a file cannot be read, others can read the key, there is no certificate, or the
    /// key does not belong to the certificate.
    pub fn new(files: &Files) -> Result<Tls, String> {
        let roots = match &files.authorities {
            Some(path) => roots_of(certificates(path)?, path)?,
            None => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?
            .with_root_certificates(roots);
        let config = match &files.own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let fits = |error| {
                    let (certificate, key) = (certificate.display(), key.display());
                    format!(
                        "--export-cert {certificate} with --export-key {key}: {error} (give the certificate of this key)"
                    )
                };
                let own = certificates(certificate)?;
                config.with_client_auth_cert(own, private_key(key)?).map_err(fits)?
            }
        };
        Ok(Tls(config))
    }

    /// How to connect to a backend that speaks `protocol`, by its name in ALPN (RFC 7301).
    pub(super) fn connector(&self, protocol: &[u8]) -> TlsConnector {
        let mut config = self.0.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

/// The authorities that this system trusts.
fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs().certs;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(found) {
        (0, _) => Err("TLS: no certificates on this system (install ca-certificates, or give --export-ca FILE)".into()),
        _ => Ok(roots),
    }
}

fn roots_of(certificates: Vec<CertificateDer<'_>>, path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let unread = |error| format!("read the certificates {}: {error}", path.display());
        roots.add(certificate).map_err(unread)?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read_public(path, "the certificates")?;
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let none = "has none (give PEM: -----BEGIN CERTIFICATE-----)";
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(format!("read the certificates {}: {none}", path.display())),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read_secret(path, "the key")?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        let none = "has none without a password (give PEM: -----BEGIN PRIVATE KEY-----)";
        format!("read the key {}: {none}", path.display())
    })
}
