//! The server: bounded connections, each with one request and a deadline.

use super::listen::HttpAddress;
use super::{guard, route};
use crate::accept::bounded;
use crate::export::Exports;
use crate::pipeline::{Names, Profiler};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::TcpListenerStream;
use tower::ServiceExt as _;

/// Maximum number of connections at a time. Further connections wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// Time that a client may take to send its request and to read the answer, in addition to the time
/// that making the answer takes.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Serves metrics and profiles without end. Dropping the future closes open connections.
pub async fn serve(
    listener: TcpListener,
    place: HttpAddress,
    profiler: Profiler,
    names: Names,
    exports: Exports,
) {
    let router = route::router(&place, profiler, names, exports);
    serve_router(listener, router, route::ANSWER_TIMEOUT).await;
}

/// Serves pages without end; each answer may take `longest`. Dropping the future closes open
/// connections.
pub(super) async fn serve_router(listener: TcpListener, router: Router, longest: Duration) {
    let accepted = bounded(TcpListenerStream::new(listener), MAX_CONNECTIONS, "an HTTP server");
    tokio::pin!(accepted);
    let mut connections = JoinSet::new();
    while let Some((stream, place)) = accepted.next().await {
        while connections.try_join_next().is_some() {}
        let router = router.clone();
        connections.spawn(async move {
            connection(stream, router, longest).await;
            drop(place);
        });
    }
}

/// Serves one request. If the client disconnects, the work for its request is dropped.
async fn connection(stream: TcpStream, router: Router, longest: Duration) {
    let Ok(local) = stream.local_addr() else { return };
    let (extend, deadline) = watch::channel(Instant::now() + TRANSFER_TIMEOUT);
    let service = service_fn(|mut request: Request<Incoming>| {
        let (router, extend) = (router.clone(), extend.clone());
        request.extensions_mut().insert(guard::Local(local.ip()));
        async move {
            // The receiver lives as long as the connection.
            let _ = extend.send(Instant::now() + longest + TRANSFER_TIMEOUT);
            let answer = router.oneshot(request).await;
            let _ = extend.send(Instant::now() + TRANSFER_TIMEOUT);
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(TRANSFER_TIMEOUT);
    let connection = http
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error of the connection concerns only its client.
        _ = connection => {}
        () = passed(deadline) => {}
    }
}

/// Completes when the deadline has passed. The deadline can be moved meanwhile.
async fn passed(mut deadline: watch::Receiver<Instant>) {
    loop {
        let until = *deadline.borrow_and_update();
        tokio::select! {
            () = sleep_until(until) => return,
            changed = deadline.changed() => {
                if changed.is_err() {
                    return sleep_until(until).await;
                }
            }
        }
    }
}
