//! Command-line options of HTTP, and the start of the HTTP server.

use clap::Args as Group;
use sampler_daemon::export::Exports;
use sampler_daemon::http::listen::{self, HttpAddress};
use sampler_daemon::http::serve;
use sampler_daemon::pipeline::{Names, Profiler};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Metrics and profiles over HTTP.
#[derive(Clone, Debug, Group)]
pub(crate) struct Http {
    /// Serve metrics for Prometheus (/metrics) and profiles for go tool pprof (/debug/pprof/heap) at 127.0.0.1:PORT;
    /// every user of this machine can read them. Port 0 is a free one, which is printed
    #[arg(long, value_name = "ADDRESS", value_parser = listen::parse)]
    http: Option<SocketAddr>,

    /// Let --http be an address that other machines reach: there is neither encryption nor a password
    #[arg(long, requires = "http")]
    http_open: bool,

    /// Answer HTTP requests for this host name, too, besides localhost and addresses (repeatable)
    #[arg(long, value_name = "NAME", requires = "http")]
    http_host: Vec<String>,
}

impl Http {
    /// Returns the address of the server; `None` if HTTP is not served.
    pub(crate) fn place(&self) -> Result<Option<HttpAddress>, String> {
        let place = |address| HttpAddress::new(address, self.http_host.clone(), self.http_open);
        self.http.map(place).transpose()
    }
}

/// A server that is bound and does not answer yet.
pub(crate) struct Bound {
    place: HttpAddress,
    listener: TcpListener,
}

impl Bound {
    /// Binds the server, if one is requested.
    pub(crate) async fn new(options: &Http) -> Result<Option<Bound>, String> {
        let Some(place) = options.place()? else { return Ok(None) };
        let listener = place.bind().await?;
        Ok(Some(Bound { place, listener }))
    }

    /// Prints the address, and serves until the guard is dropped.
    pub(crate) fn serve(self, profiler: Profiler, names: Names, exports: Exports) -> Serving {
        let mut stdout = io::stdout();
        if let Ok(address) = self.listener.local_addr() {
            // Nobody may be reading standard output.
            let _ = writeln!(stdout, "http http://{address}/").and_then(|()| stdout.flush());
        }
        Serving::of(serve::serve(self.listener, self.place, profiler, names, exports))
    }
}

/// A running server. Dropping the guard ends the server.
pub(crate) struct Serving(AbortHandle);

impl Serving {
    /// Runs `serving` until the guard is dropped.
    pub(crate) fn of(serving: impl Future<Output = ()> + Send + 'static) -> Serving {
        Serving(tokio::spawn(serving).abort_handle())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}
