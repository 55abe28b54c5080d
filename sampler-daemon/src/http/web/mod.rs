//! The web page, on request (`--web`): everything that the API answers, drawn.
//!
//! Its files are part of the program, and make no request but to the address that they came from. They hold nothing of anybody; what is profiled is shown to who has the token of
//! this start, in an `Authorization` header. The token comes to the page behind the `#` of the URL that is printed, which browsers
//! send to nobody. A cookie would go to every server of the same host, whatever its port, and so to other users of this machine.
//!
//! Numbers are made by the same functions as the API's, of the same answers of the worker.

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

/// Serves for ever; what is open when this is dropped is cut.
pub async fn serve(listener: TcpListener, token: Token, profiler: Profiler, names: Names) {
    serve_router(listener, site::router(token, profiler, names), site::MAX_ANSWER_TIME).await;
}
