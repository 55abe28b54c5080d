//! The server: our service, reflection and health on one listener.

use super::admission::{AdmissionLayer, Places};
use super::connection::connections;
use super::listen::Listener;
use super::service::Service;
use super::v1::sampler_server::SamplerServer;
use crate::export::Exports;
use crate::pipeline::{Names, Profiler};
use crate::token::Token;
use anyhow::Context as _;
use std::future::Future;
use std::time::Duration;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::server::NamedService as _;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// How long the worker may be busy with one thing before health reports that nothing is served.
const STALL: Duration = Duration::from_secs(5);
/// Ping period. A client that answers no HTTP/2 ping for twice this time is gone.
const PING_PERIOD: Duration = Duration::from_secs(20);
/// Requests of one connection at a time.
const MAX_REQUESTS_PER_CONNECTION: u32 = 64;
/// Most bytes of a request's headers.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Which clients are served, besides those that the permissions of a Unix socket admit.
pub enum Credentials {
    /// All that can connect.
    None,
    /// Clients whose requests have the token.
    Token(Token),
    /// Clients with a certificate.
    Certificates(ServerTlsConfig),
}

impl Credentials {
    /// Admits clients that one of `authorities` has certified. samplerd shows them `certificate`,
    /// whose private key is `key`. All are texts in PEM.
    ///
    /// # Errors
    /// If a text has no certificate or no key, or if the key does not fit the certificate.
    pub fn certificates(
        certificate: &str,
        key: &str,
        authorities: &str,
    ) -> Result<Credentials, String> {
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .client_ca_root(Certificate::from_pem(authorities));
        let usable = Server::builder().tls_config(tls.clone());
        usable.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        Ok(Credentials::Certificates(tls))
    }
}

/// Serves until `shutdown` completes, and then cuts open streams.
///
/// # Errors
/// If the certificates cannot be used, or if serving fails.
pub async fn serve(
    listener: Listener,
    profiler: Profiler,
    names: Names,
    exports: Exports,
    credentials: Credentials,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    // The first client may ask at once.
    set_health(&health, ServingStatus::Serving).await;
    let heartbeat = profiler.clone();
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(super::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // By default each version of reflection names and describes no version but its own.
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(
                tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
            )
            .include_reflection_service(false)
    };
    let places = Places::new();
    let (token, tls) = match credentials {
        Credentials::None => (None, None),
        Credentials::Token(token) => (Some(token), None),
        Credentials::Certificates(tls) => (None, Some(tls)),
    };
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).context("use the certificates")?;
    }
    let router = server
        .http2_keepalive_interval(Some(PING_PERIOD))
        .http2_keepalive_timeout(Some(PING_PERIOD))
        .max_concurrent_streams(MAX_REQUESTS_PER_CONNECTION)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .layer(AdmissionLayer { places: places.clone(), token })
        .add_service(health_service)
        .add_service(reflection().build_v1().context("build the reflection service")?)
        .add_service(reflection().build_v1alpha().context("build the reflection service")?)
        .add_service(SamplerServer::new(Service::new(profiler, names, exports, places)));
    // The server is dropped, which cuts open streams: waiting for streams would never end.
    let serving = async {
        match listener {
            Listener::Unix(listener, _file) => {
                router.serve_with_incoming(connections(UnixListenerStream::new(listener))).await
            }
            Listener::Tcp(listener) | Listener::Tls(listener) => {
                router.serve_with_incoming(connections(TcpListenerStream::new(listener))).await
            }
        }
    };
    tokio::select! {
        result = serving => result.context("serve the API"),
        () = report_health(health, heartbeat) => Ok(()),
        () = shutdown => Ok(()),
    }
}

/// Reports for ever whether the worker answers: for our service, and for the server as a whole,
/// which is useless without our service.
async fn report_health(health: HealthReporter, profiler: Profiler) {
    loop {
        profiler.heartbeat().stalled(STALL).await;
        tracing::warn!(
            "the worker thread has been busy for {} s: nothing is answered",
            STALL.as_secs()
        );
        set_health(&health, ServingStatus::NotServing).await;
        profiler.heartbeat().resumed().await;
        tracing::info!("the worker thread answers again");
        set_health(&health, ServingStatus::Serving).await;
    }
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in ["", SamplerServer::<Service>::NAME] {
        health.set_service_status(service, status).await;
    }
}
