//! The address of the web page: on this machine only.

use crate::http::listen::bind;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// A loopback address.
#[derive(Clone, Copy, Debug)]
pub struct WebPlace(SocketAddr);

impl WebPlace {
    /// Checks the address. Port 0 chooses a free port.
    ///
    /// # Errors
    /// One line if other machines could reach the address.
    pub fn new(address: SocketAddr) -> Result<WebPlace, String> {
        if address.ip().is_loopback() {
            return Ok(WebPlace(address));
        }
        let port = address.port();
        Err(format!(
            "--web {address}: other machines reach that, and nothing is encrypted (give 127.0.0.1:PORT; from elsewhere: ssh -L {port}:127.0.0.1:{port} HOST)"
        ))
    }

    /// Binds the address.
    ///
    /// # Errors
    /// One line that says why the address cannot be bound.
    pub async fn bind(&self) -> Result<TcpListener, String> {
        bind(self.0, "--web").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_addresses_beyond_loopback_are_refused() {
        for address in ["127.0.0.1:0", "[::1]:8080", "127.9.9.9:1"] {
            assert!(WebPlace::new(address.parse().unwrap()).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:8080", "[::]:8080", "192.168.1.2:80", "[::ffff:10.0.0.1]:80"] {
            let error = WebPlace::new(address.parse().unwrap()).unwrap_err();
            assert!(error.contains("127.0.0.1:PORT") && !error.contains('\n'), "{error}");
        }
    }
}
