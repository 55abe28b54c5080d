//! The address and the host names of the HTTP server.

use super::escape::shown;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The address and the host names of the HTTP server.
#[derive(Clone, Debug)]
pub struct HttpAddress {
    /// The address. Port 0 chooses a free port.
    pub address: SocketAddr,
    /// Host names that requests may use, in addition to `localhost` and the address of their
    /// connection.
    pub names: Vec<String>,
}

impl HttpAddress {
    /// Checks the address.
    ///
    /// # Errors
    /// One line, if other machines can reach the address and `is_open` does not allow that.
    pub fn new(
        address: SocketAddr,
        names: Vec<String>,
        is_open: bool,
    ) -> Result<HttpAddress, String> {
        if !is_open && !address.ip().is_loopback() {
            return Err(format!(
                "--http {address}: other machines reach that, and there is no password (give 127.0.0.1:PORT, or add --http-open)"
            ));
        }
        Ok(HttpAddress { address, names })
    }

    /// Binds the address.
    ///
    /// # Errors
    /// One line that says why the address cannot be bound.
    pub async fn bind(&self) -> Result<TcpListener, String> {
        let address = self.address;
        let listener = bind(address, "--http").await?;
        let whom = match address.ip().is_loopback() {
            true => "every user of this machine",
            false => "everybody who reaches this machine",
        };
        let bound = listener.local_addr().unwrap_or(address);
        tracing::warn!("http://{bound}: {whom} can read metrics and profiles there");
        Ok(listener)
    }
}

/// Binds an address that the command line gave with `option`.
pub(super) async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("listen on {address}: the port is in use (give another {option})")
        }
        _ => format!("listen on {address}: {error} (give another {option})"),
    })
}

/// Parses an address of the command line.
///
/// # Errors
/// One line.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{} is no address (try 127.0.0.1:9464)", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_beyond_loopback_need_http_open() {
        for address in ["127.0.0.1:0", "127.3.2.1:9464", "[::1]:80"] {
            assert!(HttpAddress::new(parse(address).unwrap(), vec![], false).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:9464", "[::]:9464", "10.0.0.1:80"] {
            let address = parse(address).unwrap();
            assert!(HttpAddress::new(address, vec![], false).unwrap_err().contains("--http-open"));
            assert!(HttpAddress::new(address, vec![], true).is_ok());
        }
        for wrong in ["", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
