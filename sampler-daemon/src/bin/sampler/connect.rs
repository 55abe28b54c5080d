//! Connects to samplerd, and turns failures into lines that say what to do.

use anyhow::{Result, anyhow, bail};
use hyper_util::rt::TokioIo;
use sampler_daemon::rpc::listen::socket_path;
use sampler_daemon::rpc::v1::sampler_client::SamplerClient;
use sampler_daemon::secret_file::{read_public, read_secret};
use sampler_daemon::token::TokenFile;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

const DEFAULT: &str = "unix:/run/sampler/samplerd.sock";
const VARIABLE: &str = "SAMPLER_CONNECT";
/// The variable that names the token file of a samplerd that listens on TCP.
const TOKEN_VARIABLE: &str = "SAMPLER_TOKEN_FILE";
/// The variables that name the files for TLS, in PEM: authorities of samplerd's certificate, and the
/// client's own certificate and key.
const TLS_VARIABLES: [&str; 3] = ["SAMPLER_TLS_CA", "SAMPLER_TLS_CERT", "SAMPLER_TLS_KEY"];
/// Interval of keep-alive pings. A listener that never answers is given up after about two
/// intervals.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The address on which samplerd listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
    /// `HOST:PORT`, by TLS.
    Tls(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => socket_path(path).map(Address::Unix),
            Some((scheme @ ("tcp" | "tls"), place)) => match place.rsplit_once(':') {
                Some((host, port))
                    if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) =>
                {
                    let address = if scheme == "tls" { Address::Tls } else { Address::Tcp };
                    Ok(address(place.to_owned()))
                }
                _ => Err(format!("{scheme} needs a host and a port (try {scheme}:127.0.0.1:7070)")),
            },
            _ => Err("neither unix:PATH, tcp:127.0.0.1:PORT nor tls:HOST:PORT".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp:{place}"),
            Address::Tls(place) => write!(f, "tls:{place}"),
        }
    }
}

/// Returns the given address, else that of the environment, else the default.
pub(crate) fn address(given: Option<Address>) -> Result<Address> {
    if let Some(address) = given {
        return Ok(address);
    }
    // An empty variable counts as unset.
    let given = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let text = given.unwrap_or_else(|| DEFAULT.into());
    let text = text.to_string_lossy();
    text.parse().map_err(|error| anyhow!("{VARIABLE} is {text:?}: {error}"))
}

/// A client that adds the token, if one is needed, to every request.
pub(crate) type Client = SamplerClient<InterceptedService<Channel, Credentials>>;

/// The token of a samplerd that listens on TCP.
#[derive(Clone)]
pub(crate) struct Credentials(Option<MetadataValue<Ascii>>);

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl Credentials {
    /// Returns the credentials for an address. A Unix socket needs none.
    fn of(address: &Address) -> Result<Credentials> {
        let Address::Tcp(place) = address else { return Ok(Credentials(None)) };
        let given = std::env::var_os(TOKEN_VARIABLE).filter(|path| !path.is_empty());
        let port = place.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default();
        // Through a tunnel the port differs from samplerd's. Then samplerd's answer says that the
        // token is missing.
        let usual = TokenFile::usual(port);
        let path = match given {
            Some(path) => PathBuf::from(path),
            None if matches!(usual.try_exists(), Ok(false)) => return Ok(Credentials(None)),
            None => usual,
        };
        let token = TokenFile::read(&path).map_err(|error| anyhow!(error))?;
        let header = format!("Bearer {token}").parse();
        header.map(|header| Credentials(Some(header))).map_err(|_| {
            anyhow!("{}: is no token (give the --token-file of samplerd)", path.display())
        })
    }
}

/// Connects to the samplerd that listens at `address`.
pub(crate) async fn client(address: &Address) -> Result<Client> {
    let channel = match address {
        Address::Unix(path) => channel(UnixStream::connect(path).await, address).await,
        Address::Tcp(place) | Address::Tls(place) => {
            channel(TcpStream::connect(place).await, address).await
        }
    }?;
    // The size of a message is not bounded, because a profile can have many stacks.
    let client = SamplerClient::with_interceptor(channel, Credentials::of(address)?);
    Ok(client.max_decoding_message_size(usize::MAX))
}

/// Makes a channel of a connection. The caller connects itself, because its error says what to do.
async fn channel<S>(connected: io::Result<S>, address: &Address) -> Result<Channel>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Some(connected.map_err(|error| refused(address, &error))?);
    let connector = tower::service_fn(move |_| {
        // There is one stream: after a broken connection the command ends.
        let stream = stream.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    let endpoint = match address {
        Address::Tls(place) => tls_endpoint(place)?,
        // The connection exists already. HTTP only needs some host name.
        _ => Endpoint::from_static("http://samplerd"),
    };
    let endpoint = endpoint
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .keep_alive_while_idle(true);
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| broken(address, &error))
}

/// An endpoint that speaks TLS with the files that the environment names.
fn tls_endpoint(place: &str) -> Result<Endpoint> {
    let path = |variable: &str| {
        let path = std::env::var_os(variable).filter(|path| !path.is_empty());
        path.map(PathBuf::from).ok_or_else(|| {
            anyhow!(
                "{variable} is not set: tls:{place} needs {} (PEM files)",
                TLS_VARIABLES.join(", ")
            )
        })
    };
    let failed = |error: String| anyhow!(error);
    let [ca, certificate, key] = TLS_VARIABLES;
    let authorities = read_public(&path(ca)?, ca).map_err(failed)?;
    let certificate = read_public(&path(certificate)?, certificate).map_err(failed)?;
    let key = read_secret(&path(key)?, key).map_err(failed)?;
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authorities))
        .identity(Identity::from_pem(certificate, key));
    let endpoint = Endpoint::from_shared(format!("https://{place}"))
        .map_err(|error| anyhow!("tls:{place}: {error}"))?;
    endpoint
        .tls_config(tls)
        .map_err(|error| anyhow!("{}: {:#}", TLS_VARIABLES.join(", "), anyhow::Error::from(error)))
}

fn refused(address: &Address, error: &io::Error) -> anyhow::Error {
    let reason = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "no samplerd listens there (start one: samplerd --all, or --pid PID; or give --connect)"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied (run as the user of samplerd, usually root)".to_owned()
        }
        _ => format!("{} (give --connect)", crate::output::reason(error)),
    };
    anyhow!("connect {address}: {reason}")
}

fn broken(address: &Address, error: &dyn Error) -> anyhow::Error {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let question = match address {
        Address::Tls(_) => {
            "does SAMPLER_TLS_CA certify samplerd, and its --tls-client-ca SAMPLER_TLS_CERT?"
        }
        _ => "is it samplerd that listens there?",
    };
    anyhow!("connection to {address} broke: {innermost} ({question})")
}

/// Makes the error of a failed call: the daemon's own message, unless the connection failed.
pub(crate) fn failed(address: &Address, status: &Status) -> anyhow::Error {
    if let Some(source) = status.source() {
        return broken(address, source);
    }
    match (status.code(), status.message()) {
        (Code::Unimplemented, _) => {
            anyhow!("what listens at {address} is no samplerd, or one of another version")
        }
        (code, "") => anyhow!("{address}: {code}"),
        (_, message) => anyhow!("{message}"),
    }
}

/// Returns `answer`. Its error is a message of samplerd that is invalid.
pub(crate) fn check<T>(address: &Address, answer: Result<T, String>) -> Result<T> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(error) => bail!("samplerd at {address} sent a profile that makes no sense: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused() {
        for text in
            ["unix:/run/x.sock", "unix:x", "tcp:127.0.0.1:1", "tcp:[::1]:65535", "tls:host:1"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "/run/x.sock",
            "tcp:1234",
            "tcp::1",
            "tcp:h:0",
            "tcp:h:65536",
            "tls:1",
            "http:x",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
