//! Accepted connections, with a bound on their number.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_stream::{Stream, StreamExt as _};

/// Wait after a failed accept, for example because of too many open files.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepted streams, each with one of `max` places. A further client waits until a place is
/// dropped. `what` names the server in the log.
pub(crate) fn bounded<S>(
    accepted: impl Stream<Item = io::Result<S>>,
    max: usize,
    what: &'static str,
) -> impl Stream<Item = (S, OwnedSemaphorePermit)> {
    let places = Arc::new(Semaphore::new(max));
    let bounded = accepted.then(move |stream| {
        let places = Arc::clone(&places);
        async move {
            match stream {
                // The semaphore is never closed.
                Ok(stream) => Some((stream, places.acquire_owned().await.ok()?)),
                Err(error) => {
                    tracing::warn!("accept a connection to {what}: {error}");
                    sleep(RETRY_DELAY).await;
                    None
                }
            }
        }
    });
    bounded.filter_map(|connection| connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_beyond_the_bound_wait() {
        let accepted = [Ok(0), Err(io::Error::other("too many open files")), Ok(1), Ok(2)];
        let connections = bounded(tokio_stream::iter(accepted), 2, "the test");
        tokio::pin!(connections);
        let (first, place) = connections.next().await.unwrap();
        let (second, _kept) = connections.next().await.unwrap();
        let next = connections.next();
        tokio::pin!(next);
        let soon = tokio::time::timeout(Duration::from_millis(20), &mut next).await;
        assert!(soon.is_err(), "one more than the bound");
        drop(place);
        let (third, _) = next.await.unwrap();
        assert_eq!([first, second, third], [0, 1, 2]);
    }
}
