//! A connection of a client: who the client is, and when samplerd closes it.
//!
//! Two kinds of clients are dropped: those whose first request is not admitted in time, and those that do not read an answer. So neither
//! descriptors nor memory can be held by somebody who only waits.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::Connected;

/// Connections at a time; further clients wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// Wait after an accept that failed, of too many open files for example.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Period of the checks of a connection.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Longest time from a connection to its first admitted request over TCP, where anybody can connect.
const TCP_ADMISSION: Duration = Duration::from_secs(5);
/// The same over a Unix socket, whose permissions say who can connect.
const UNIX_ADMISSION: Duration = Duration::from_secs(60);
/// Longest time for which a client may leave an answer unread.
const DELIVERY: Duration = Duration::from_secs(30);

/// A stream that knows its client.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Longest time from a connection to its first admitted request.
    const ADMISSION: Duration;

    /// Effective user id of the client, where the kernel knows it (`SO_PEERCRED` of unix(7)).
    fn user(&self) -> Option<u32>;
}

impl ClientStream for TcpStream {
    const ADMISSION: Duration = TCP_ADMISSION;

    fn user(&self) -> Option<u32> {
        None
    }
}

impl ClientStream for super::authority::LenientStream {
    const ADMISSION: Duration = UNIX_ADMISSION;

    fn user(&self) -> Option<u32> {
        self.get_ref().peer_cred().ok().map(|of| of.uid())
    }
}

/// The client of a request; every request carries it as an extension.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Effective user id; `None` over TCP, where a token admits.
    pub(super) user: Option<u32>,
    lease: Arc<Lease>,
}

impl Client {
    /// A request of this client was admitted: the connection may stay.
    pub(super) fn admit(&self) {
        self.lease.state().is_admitted = true;
    }

    /// An answer is handed to the connection; the guard is dropped when the connection asks for more.
    pub(super) fn begin_delivery(&self) -> Delivery {
        let begun = Instant::now();
        self.lease.state().deliveries.push(begun);
        Delivery { lease: Arc::clone(&self.lease), begun }
    }
}

/// An answer on its way to a client.
#[derive(Debug)]
pub(super) struct Delivery {
    lease: Arc<Lease>,
    begun: Instant,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let mut state = self.lease.state();
        if let Some(at) = state.deliveries.iter().position(|begun| *begun == self.begun) {
            state.deliveries.swap_remove(at);
        }
    }
}

/// How long a connection may stay.
#[derive(Debug)]
struct Lease {
    opened: Instant,
    admission: Duration,
    state: Mutex<LeaseState>,
}

#[derive(Debug, Default)]
struct LeaseState {
    is_admitted: bool,
    /// When each answer that is not read yet was handed over.
    deliveries: Vec<Instant>,
}

impl Lease {
    fn new(admission: Duration) -> Lease {
        Lease { opened: Instant::now(), admission, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the connection is to be closed at `now`, if it is.
    fn ended(&self, now: Instant) -> Option<&'static str> {
        let state = self.state();
        let is_late = |begun: &Instant| now.saturating_duration_since(*begun) > DELIVERY;
        if !state.is_admitted && now.saturating_duration_since(self.opened) > self.admission {
            Some("the client sent no request in time")
        } else if state.deliveries.iter().any(is_late) {
            Some("the client does not read its answer")
        } else {
            None
        }
    }
}

/// A client's connection with its lease and its place among all connections.
pub(super) struct Connection<S> {
    stream: S,
    client: Client,
    checks: Interval,
    _place: OwnedSemaphorePermit,
}

impl<S: ClientStream> Connection<S> {
    fn new(stream: S, place: OwnedSemaphorePermit) -> Connection<S> {
        let client = Client { user: stream.user(), lease: Arc::new(Lease::new(S::ADMISSION)) };
        let mut checks = interval(CHECK_PERIOD);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Connection { stream, client, checks, _place: place }
    }
}

/// Connections from accepted streams: so many at a time, and a pause after an accept that failed.
pub(super) fn connections<S: ClientStream>(
    accepted: impl Stream<Item = io::Result<S>>,
) -> impl Stream<Item = io::Result<Connection<S>>> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = accepted.then(move |stream| {
        let places = Arc::clone(&places);
        async move {
            match stream {
                Ok(stream) => {
                    // The semaphore is never closed.
                    let place = places.acquire_owned().await.ok()?;
                    Some(Ok(Connection::new(stream, place)))
                }
                Err(error) => {
                    tracing::warn!("accept a connection to the API: {error}");
                    sleep(ACCEPT_RETRY).await;
                    None
                }
            }
        }
    });
    connections.filter_map(|connection| connection)
}

impl<S: ClientStream> Connected for Connection<S> {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client.clone()
    }
}

impl<S: ClientStream> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.checks.poll_tick(context).is_ready() {
            if let Some(reason) = self.client.lease.ended(Instant::now()) {
                tracing::debug!("a connection to the API is closed: {reason}");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)));
            }
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: ClientStream> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::authority::LenientStream;
    use tokio::net::UnixStream;

    #[test]
    fn only_admitted_clients_stay() {
        let lease = Arc::new(Lease::new(TCP_ADMISSION));
        let client = Client { user: None, lease: Arc::clone(&lease) };
        let after = |time| lease.ended(lease.opened + time);
        assert_eq!(after(TCP_ADMISSION), None);
        let late = TCP_ADMISSION + Duration::from_millis(1);
        assert!(after(late).is_some_and(|reason| reason.contains("no request")));
        client.admit();
        assert_eq!(after(Duration::from_secs(86_400)), None);
    }

    #[test]
    fn an_unread_answer_ends_the_connection() {
        let lease = Arc::new(Lease::new(UNIX_ADMISSION));
        let client = Client { user: Some(0), lease: Arc::clone(&lease) };
        client.admit();
        let (first, second) = (client.begin_delivery(), client.begin_delivery());
        let late = Instant::now() + DELIVERY + Duration::from_secs(1);
        drop(first);
        assert!(lease.ended(late).is_some_and(|reason| reason.contains("not read")));
        drop(second);
        assert_eq!(lease.ended(late), None);
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait() {
        let (ours, theirs): (Vec<_>, Vec<_>) =
            (0..=MAX_CONNECTIONS).map(|_| UnixStream::pair().unwrap()).unzip();
        let accepted = ours.into_iter().map(|of| Ok(LenientStream::new(of)));
        let connections = connections(tokio_stream::iter(accepted));
        tokio::pin!(connections);
        let mut open = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            open.push(connections.next().await.unwrap().unwrap());
        }
        let user = open[0].connect_info().user;
        assert_eq!(user, Some(rustix::process::geteuid().as_raw()));
        let next = connections.next();
        tokio::pin!(next);
        let soon = tokio::time::timeout(Duration::from_millis(20), &mut next).await;
        assert!(soon.is_err(), "one more than the bound");
        open.pop();
        assert!(next.await.is_some());
        drop(theirs);
    }
}
