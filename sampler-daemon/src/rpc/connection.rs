//! A connection of a client: who the client is, and when samplerd closes the connection.
//!
//! Two kinds of clients are dropped: those whose first request is not admitted in time, and those
//! that do not read an answer.
//! So a client that only waits can hold neither descriptors nor memory.

use super::authority::Authorities;
use crate::accept::bounded;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::server::Connected;

/// Connections at a time. Further clients wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// Period of the checks of a connection.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Longest time from a connection to its first admitted request over TCP, where any local user can
/// connect.
const TCP_ADMISSION: Duration = Duration::from_secs(5);
/// Longest time from a connection to its first admitted request over a Unix socket, whose
/// permissions limit who can connect.
const UNIX_ADMISSION: Duration = Duration::from_secs(60);
/// Longest time for which a client may leave an answer unread.
const DELIVERY: Duration = Duration::from_secs(30);

/// A kind of stream of clients.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Longest time from a connection to its first admitted request.
    const ADMISSION: Duration;

    /// Effective user id of the client, if the kernel knows it (`SO_PEERCRED` of unix(7)).
    fn user(&self) -> Option<u32>;

    /// Rewrites the authorities that clients send, on streams where these may be paths.
    fn authorities() -> Option<Authorities>;
}

impl ClientStream for TcpStream {
    const ADMISSION: Duration = TCP_ADMISSION;

    fn user(&self) -> Option<u32> {
        None
    }

    fn authorities() -> Option<Authorities> {
        None
    }
}

impl ClientStream for UnixStream {
    const ADMISSION: Duration = UNIX_ADMISSION;

    fn user(&self) -> Option<u32> {
        self.peer_cred().ok().map(|of| of.uid())
    }

    fn authorities() -> Option<Authorities> {
        Some(Authorities::default())
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
    /// Records that a request of this client was admitted: the connection may stay.
    pub(super) fn admit(&self) {
        self.lease.state().is_admitted = true;
    }

    /// Records that an answer was handed to the connection. The guard is dropped when the
    /// connection asks for more.
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
    /// When each unread answer was handed over.
    deliveries: Vec<Instant>,
}

impl Lease {
    fn new(admission: Duration) -> Lease {
        Lease { opened: Instant::now(), admission, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the connection is to be closed at `now`; `None` if it stays.
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
    authorities: Option<Authorities>,
    client: Client,
    checks: Interval,
    _place: OwnedSemaphorePermit,
}

impl<S: ClientStream> Connection<S> {
    fn new(stream: S, place: OwnedSemaphorePermit) -> Connection<S> {
        let client = Client { user: stream.user(), lease: Arc::new(Lease::new(S::ADMISSION)) };
        let mut checks = interval(CHECK_PERIOD);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Connection { stream, authorities: S::authorities(), client, checks, _place: place }
    }
}

/// Connections from accepted streams, at most [`MAX_CONNECTIONS`] at a time.
pub(super) fn connections<S: ClientStream>(
    accepted: impl Stream<Item = io::Result<S>>,
) -> impl Stream<Item = io::Result<Connection<S>>> {
    let accepted = bounded(accepted, MAX_CONNECTIONS, "the API");
    accepted.map(|(stream, place)| Ok(Connection::new(stream, place)))
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
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if let Some(authorities) = &mut self.authorities {
            authorities.rewrite(&mut buffer.filled_mut()[before..]);
        }
        Poll::Ready(Ok(()))
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
    async fn the_user_of_a_unix_socket_client_is_known() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let connections = connections(tokio_stream::iter([Ok(ours)]));
        tokio::pin!(connections);
        let connection = connections.next().await.unwrap().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(connection.connect_info().user, Some(own));
    }
}
