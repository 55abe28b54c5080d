//! The server: bounded connections, each for one request, each with a deadline.

use super::answer::{Answer, Problem};
use super::listen::Place;
use super::route::HttpSite;
use crate::pipeline::{Names, Profiler};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Connections at a time; further ones wait to be accepted.
const MOST_CONNECTIONS: usize = 64;
/// How long a client may take to ask, and to take what it is given, besides the time that making it takes.
const TRANSFER: Duration = Duration::from_secs(10);
/// Most bytes of a request's head.
const MOST_HEAD_BYTES: usize = 16 << 10;
/// After an accept that failed, of too many open files for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Everything that is served at one address.
pub(super) trait Site: Send + Sync + 'static {
    /// What a request asks for.
    type Page: Send;

    /// The page of a request that came to `local`.
    fn page(&self, request: &Parts, local: IpAddr) -> Result<Self::Page, Problem>;

    /// How long it may take.
    fn limit(&self, page: &Self::Page) -> Duration;

    /// Its answer.
    fn answer(
        &self,
        page: Self::Page,
        method: &Method,
    ) -> impl Future<Output = Result<Answer, Problem>> + Send;

    /// What every answer needs besides.
    fn finish(&self, answer: Answer) -> Answer {
        answer
    }
}

/// Serves metrics and profiles for ever; what is open when this is dropped is cut.
pub async fn serve(listener: TcpListener, place: Place, profiler: Profiler, names: Names) {
    serve_site(listener, HttpSite::new(&place, profiler, names)).await;
}

/// Serves for ever; what is open when this is dropped is cut.
pub(super) async fn serve_site(listener: TcpListener, site: impl Site) {
    let site = Arc::new(site);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Never closed.
        let Ok(permit) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(&site);
                connections.spawn(async move {
                    connection(stream, site).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("accept an HTTP connection: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// One request and its answer. A client that goes away ends it, whatever it has asked for: nothing runs on its behalf any more.
async fn connection(stream: TcpStream, site: Arc<impl Site>) {
    let Ok(local) = stream.local_addr() else { return };
    let (extend, deadline) = watch::channel(Instant::now() + TRANSFER);
    let service = service_fn(|request| {
        let (site, extend) = (Arc::clone(&site), extend.clone());
        async move { Ok::<_, Infallible>(answer(request, &*site, local.ip(), &extend).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(TRANSFER);
    let connection = http
        .keep_alive(false)
        .max_buf_size(MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client that breaks off is its own affair.
        _ = connection => {}
        () = passed(deadline) => {}
    }
}

async fn answer(
    request: Request<Incoming>,
    site: &impl Site,
    local: IpAddr,
    extend: &watch::Sender<Instant>,
) -> Answer {
    let (request, _body) = request.into_parts();
    let answer = match site.page(&request, local) {
        Ok(page) => {
            // The connection is there to see.
            let _ = extend.send(Instant::now() + site.limit(&page) + TRANSFER);
            site.answer(page, &request.method).await
        }
        Err(problem) => Err(problem),
    };
    let _ = extend.send(Instant::now() + TRANSFER);
    site.finish(answer.unwrap_or_else(|problem: Problem| problem.answer()))
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
