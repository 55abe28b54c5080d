//! The server: bounded connections, each for one request, each with a deadline.

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

/// Connections at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to ask, and to take what it is given, besides the time that making it takes.
const TRANSFER: Duration = Duration::from_secs(10);
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Serves metrics and profiles for ever; what is open when this is dropped is cut.
pub async fn serve(
    listener: TcpListener,
    place: HttpAddress,
    profiler: Profiler,
    names: Names,
    exports: Exports,
) {
    let router = route::router(&place, profiler, names, exports);
    serve_router(listener, router, route::LONGEST).await;
}

/// Serves for ever pages of which each takes at most `longest`; what is open when this is dropped is cut.
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

/// One request and its answer. A client that goes away ends it, whatever it has asked for: nothing runs on its behalf any more.
async fn connection(stream: TcpStream, router: Router, longest: Duration) {
    let Ok(local) = stream.local_addr() else { return };
    let (extend, deadline) = watch::channel(Instant::now() + TRANSFER);
    let service = service_fn(|mut request: Request<Incoming>| {
        let (router, extend) = (router.clone(), extend.clone());
        request.extensions_mut().insert(guard::Local(local.ip()));
        async move {
            // The connection is there to see.
            let _ = extend.send(Instant::now() + longest + TRANSFER);
            let answer = router.oneshot(request).await;
            let _ = extend.send(Instant::now() + TRANSFER);
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(TRANSFER);
    let connection = http
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that breaks off is its own affair.
        _ = connection => {}
        () = passed(deadline) => {}
    }
}

/// Completes when the deadline has passed, which may be moved meanwhile.
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
