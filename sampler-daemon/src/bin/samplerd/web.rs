//! Command-line options of the web page, and the start of its server.

use crate::http::Serving;
use clap::Args as Group;
use sampler_daemon::http::listen;
use sampler_daemon::http::web::{WebPlace, serve};
use sampler_daemon::pipeline::{Names, Profiler};
use sampler_daemon::token::Token;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The web page.
#[derive(Clone, Debug, Group)]
pub(crate) struct Web {
    /// Serve a web page at 127.0.0.1:PORT: flame graph, functions, processes, history. Its URL is printed, and has the token
    /// without which nothing can be read. Port 0 is a free one
    #[arg(long, value_name = "ADDRESS", value_parser = listen::parse)]
    web: Option<SocketAddr>,
}

impl Web {
    /// Returns the address of the server; `None` if the page is not served.
    pub(crate) fn place(&self) -> Result<Option<WebPlace>, String> {
        self.web.map(WebPlace::new).transpose()
    }
}

/// A server that is bound and does not answer yet.
pub(crate) struct Bound {
    listener: TcpListener,
    token: Token,
}

impl Bound {
    /// Binds the server, if one is requested.
    pub(crate) async fn new(options: &Web) -> Result<Option<Bound>, String> {
        let Some(place) = options.place()? else { return Ok(None) };
        let token = Token::new().map_err(|error| format!("make a token for --web: {error}"))?;
        Ok(Some(Bound { listener: place.bind().await?, token }))
    }

    /// Prints the URL, and serves until the guard is dropped.
    pub(crate) fn serve(self, profiler: Profiler, names: Names) -> Serving {
        let mut stdout = io::stdout();
        if let Ok(address) = self.listener.local_addr() {
            let token = self.token.text();
            // Nobody may be reading standard output.
            let _ = writeln!(stdout, "web http://{address}/#token={token}")
                .and_then(|()| stdout.flush());
        }
        Serving::of(serve(self.listener, self.token, profiler, names))
    }
}
