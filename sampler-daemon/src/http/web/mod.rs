//! The web page, on request (`--web`): everything that the API answers, drawn.
//!
//! The page's files are part of the program and contain no profiled data. The page asks only the
//! address that it came from. Profiles need the token of this start, in an `Authorization` header.
//! The page finds the token behind the `#` of the printed URL, a part that browsers send to nobody.
//! A cookie would be sent to every server of the same host, whatever its port, and so to servers of
//! other users of this machine.
//!
//! The page's numbers are made by the API's functions, from the same answers of the worker.

mod difference;
mod files;
mod history;
mod overview;
mod page_request;
mod place;
mod secrecy;
mod site;
mod snapshots;

use crate::token::Token;
pub use place::WebPlace;

use super::serve::serve_router;
use crate::pipeline::{Names, Profiler};
use tokio::net::TcpListener;

/// Serves without end. Dropping the future closes open connections.
pub async fn serve(listener: TcpListener, token: Token, profiler: Profiler, names: Names) {
    serve_router(listener, site::router(token, profiler, names), site::MAX_ANSWER_TIME).await;
}
