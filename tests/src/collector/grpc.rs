//! The collector's gRPC server, by the published service.

use super::{AnswerMode, Received, State};
use anyhow::{Context as _, Result};
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_server::{
    ProfilesService, ProfilesServiceServer,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

struct Service(Arc<Mutex<State>>);

/// Starts a server that runs for ever on a thread of its own.
pub(super) fn start(state: Arc<Mutex<State>>) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("listen")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("start a runtime")?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener)?);
            let service = ProfilesServiceServer::new(Service(state));
            let service = service.accept_compressed(CompressionEncoding::Gzip);
            Server::builder().add_service(service).serve_with_incoming(incoming).await?;
            anyhow::Ok(())
        })
    });
    Ok(address)
}

#[tonic::async_trait]
impl ProfilesService for Service {
    async fn export(
        &self,
        request: Request<ExportProfilesServiceRequest>,
    ) -> Result<Response<ExportProfilesServiceResponse>, Status> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        state.attempts.push(at);
        let text = |of: tonic::metadata::KeyAndValueRef<'_>| match of {
            tonic::metadata::KeyAndValueRef::Ascii(key, value) => {
                Some((key.to_string(), value.to_str().ok()?.to_owned()))
            }
            tonic::metadata::KeyAndValueRef::Binary(..) => None,
        };
        let headers = request.metadata().iter().filter_map(text).collect();
        let (mode, line) = (state.mode, "Export".to_owned());
        let message = Some(request.into_inner());
        state.received.push(Received { at, mode, line, headers, body: Vec::new(), message });
        match mode {
            AnswerMode::Take => Ok(Response::new(ExportProfilesServiceResponse::default())),
            AnswerMode::Refuse(400, _) => Err(Status::invalid_argument("no")),
            _ => Err(Status::unavailable("busy")),
        }
    }
}
