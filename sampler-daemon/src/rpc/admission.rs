//! Which requests are answered, and how many large ones at a time.
//!
//! A profile of all stacks takes up to 100 MB from its assembly until its client has read it.
//! So one is made at a time, and each keeps its place until the client has read it. Small answers
//! (status, processes) never wait for large ones.

use super::connection::{Client, Delivery};
use crate::token::{Token, TokenError};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

/// Large answers that are made or read at a time. While one client reads slowly, another has an
/// answer.
const MAX_LARGE_ANSWERS: usize = 2;
/// Large answers that are made at a time. An answer takes most memory while it is made, since its
/// stacks are then in several forms.
const MAX_MAKING: usize = 1;
/// Requests for large answers that wait for their turn. Further ones are refused.
const MAX_WAITING: usize = 64;
/// Streams (`WatchProfile`, `StreamSamples`) at a time. Further ones are refused.
const MAX_STREAMS: usize = 64;
/// Methods whose answers are large.
const LARGE: [&str; 4] = ["/GetProfile", "/GetLifetimes", "/GetLeaks", "/Compare"];

/// The places of answers that need much memory.
#[derive(Clone, Debug)]
pub(super) struct Places {
    large: Arc<Semaphore>,
    making: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Places {
    pub(super) fn new() -> Places {
        Places {
            large: Arc::new(Semaphore::new(MAX_LARGE_ANSWERS)),
            making: Arc::new(Semaphore::new(MAX_MAKING)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }

    /// A place for one large answer, as soon as one is free, and the right to make the answer.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many requests wait.
    pub(super) async fn large_answer(&self) -> Result<LargePlace, Status> {
        let waiting = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_WAITING} profiles are asked for at a time (ask again later)"
            ))
        })?;
        // The semaphores are never closed.
        let closed = |closed: AcquireError| Status::internal(closed.to_string());
        let place = Arc::clone(&self.large).acquire_owned().await.map_err(closed)?;
        let making = Arc::clone(&self.making).acquire_owned().await.map_err(closed)?;
        drop(waiting);
        Ok(LargePlace { place, making })
    }

    /// A place for a stream.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if all places are taken.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_STREAMS} streams are open (end one of them, or ask for single profiles)"
            ))
        })
    }
}

/// A place for an answer that is not made yet.
pub(super) struct LargePlace {
    place: OwnedSemaphorePermit,
    making: OwnedSemaphorePermit,
}

/// Admits requests: adds [`Admission`] to a server.
#[derive(Clone)]
pub(super) struct AdmissionLayer {
    pub(super) places: Places,
    /// The token that a request needs; `None`: all clients that can connect are admitted.
    pub(super) token: Option<Token>,
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = Admission<S>;

    fn layer(&self, inner: S) -> Admission<S> {
        Admission { inner, layer: self.clone() }
    }
}

/// A service behind the checks of [`AdmissionLayer`].
#[derive(Clone)]
pub(super) struct Admission<S> {
    inner: S,
    layer: AdmissionLayer,
}

impl<S> Service<Request<Body>> for Admission<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let waiting = self.inner.clone();
        // The inner service that is ready is used; its copy becomes ready later.
        let mut inner = std::mem::replace(&mut self.inner, waiting);
        let layer = self.layer.clone();
        let admitted = layer.admit(&request);
        let is_large = LARGE.iter().any(|method| request.uri().path().ends_with(method));
        Box::pin(async move {
            let client = match admitted {
                Ok(client) if is_large => client,
                Ok(_) => return inner.call(request).await,
                Err(status) => return Ok(status.into_http()),
            };
            match layer.places.large_answer().await {
                Err(status) => Ok(status.into_http()),
                Ok(place) => {
                    let response = inner.call(request).await?;
                    let unread = Unread::new(client, place);
                    Ok(response.map(|body| Body::new(LargeAnswer { body, unread })))
                }
            }
        })
    }
}

impl AdmissionLayer {
    /// The client of a request, if the request is to be answered.
    fn admit(&self, request: &Request<Body>) -> Result<Client, Status> {
        let client = request.extensions().get::<Client>();
        let client = client.ok_or_else(|| Status::internal("a request without a connection"))?;
        if let Some(token) = &self.token {
            check_token(request, token)?;
        }
        client.admit();
        Ok(client.clone())
    }
}

/// Checks that a request has the token as `authorization: Bearer TOKEN`.
fn check_token(request: &Request<Body>, token: &Token) -> Result<(), Status> {
    let given = request.headers().get_all(AUTHORIZATION).iter().map(|given| given.to_str().ok());
    token.check(given).map_err(|error| {
        Status::unauthenticated(match error {
            TokenError::Missing => {
                "no token (give the --token-file of samplerd, or send authorization: Bearer TOKEN)"
            }
            TokenError::Wrong => {
                "wrong token (give the --token-file of samplerd; each start makes another token)"
            }
            TokenError::Several => "more than one token (send one)",
        })
    })
}

/// Resources that a large answer holds until the client has read it.
pub(super) struct Unread {
    client: Client,
    place: Option<OwnedSemaphorePermit>,
    delivery: Option<Delivery>,
}

impl Unread {
    /// The state of an answer that is made already. The next answer can be made.
    pub(super) fn new(client: Client, place: LargePlace) -> Unread {
        let LargePlace { place, making } = place;
        drop(making);
        Unread { client, place: Some(place), delivery: None }
    }

    /// Marks the answer as handed to the connection.
    pub(super) fn hand_over(&mut self) {
        self.delivery = Some(self.client.begin_delivery());
    }
}

/// The body of a large answer. The connection asks for the next frame when it has sent most of the
/// last one.
struct LargeAnswer {
    body: Body,
    unread: Unread,
}

impl tonic::codegen::Body for LargeAnswer {
    type Data = <Body as tonic::codegen::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Status>>> {
        self.unread.delivery = None;
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = &frame {
            let is_data = |of: &http_body::Frame<Self::Data>| of.is_data();
            match frame {
                Some(Ok(frame)) if is_data(frame) => self.unread.hand_over(),
                // The trailers, or the end: the answer has been read.
                _ => self.unread.place = None,
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
