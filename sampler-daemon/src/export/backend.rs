//! Connections to a backend, with or without TLS.

use super::destination::{Protocol, Server};
use super::tls::Tls;
use anyhow::{Context as _, anyhow};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A backend, and how to connect to it.
#[derive(Clone)]
pub(super) struct Backend {
    pub(super) server: Server,
    /// `None`: nothing is encrypted.
    tls: Option<TlsConnector>,
}

impl Backend {
    /// `tls` has to be there for a server that wants it.
    pub(super) fn new(server: Server, tls: Option<&Tls>) -> Backend {
        let protocol: &[u8] = match server.protocol {
            Protocol::OtlpGrpc => b"h2",
            Protocol::OtlpHttp | Protocol::Pyroscope | Protocol::ClickHouse => b"http/1.1",
        };
        let tls = tls.filter(|_| server.is_secure).map(|tls| tls.connector(protocol));
        Backend { server, tls }
    }

    /// Connects.
    ///
    /// # Errors
    /// If nobody listens, or if the server's certificate does not fit.
    pub(super) async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        let server = &self.server;
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
        let stream = stream.context("connect")?;
        stream.set_nodelay(true).context("connect")?;
        match &self.tls {
            None if server.is_secure => Err(anyhow!("connect: TLS is not set up")),
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let name = ServerName::try_from(server.host.clone()).context("TLS")?;
                let stream = tls.connect(name, stream).await.map_err(explained)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Why there is no TLS, with the remedy.
fn explained(error: std::io::Error) -> anyhow::Error {
    let cause = error.get_ref().and_then(|of| of.downcast_ref::<rustls::Error>());
    let remedy = match cause {
        Some(rustls::Error::InvalidCertificate(_)) => {
            " (--export-ca FILE names the server's authority)"
        }
        Some(rustls::Error::AlertReceived(_)) => {
            " (--export-cert and --export-key: a certificate that the server accepts)"
        }
        _ => "",
    };
    anyhow!("TLS: {error}{remedy}")
}
