//! The server: our service, reflection and health on one listener.

use super::authority::LenientStream;
use super::listen::Listener;
use super::service::Service;
use super::v1::sampler_server::SamplerServer;
use crate::pipeline::{Names, Profiler};
use anyhow::Context as _;
use std::future::Future;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;

/// Serves until `shutdown` completes; streams that are open then are cut.
pub async fn serve(
    listener: Listener,
    profiler: Profiler,
    names: Names,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<SamplerServer<Service>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(super::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // By itself each version of reflection names and describes no version but its own.
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(
                tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
            )
            .include_reflection_service(false)
    };
    let router = Server::builder()
        .add_service(health_service)
        .add_service(reflection().build_v1().context("build the reflection service")?)
        .add_service(reflection().build_v1alpha().context("build the reflection service")?)
        .add_service(SamplerServer::new(Service::new(profiler, names)));
    // Dropping the server cuts open streams; waiting for them would wait for ever.
    let serving = async {
        match listener {
            Listener::Unix(listener, _file) => {
                let connections = UnixListenerStream::new(listener);
                let connections = connections.map(|stream| stream.map(LenientStream::new));
                router.serve_with_incoming(connections).await
            }
            Listener::Tcp(listener) => {
                router.serve_with_incoming(TcpListenerStream::new(listener)).await
            }
        }
    };
    tokio::select! {
        result = serving => result.context("serve the API"),
        () = shutdown => Ok(()),
    }
}
