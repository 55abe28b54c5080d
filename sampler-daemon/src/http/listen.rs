//! Where HTTP is served, and by which names.

use super::escape::shown;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Where HTTP is served, and by which names.
#[derive(Clone, Debug)]
pub struct HttpAddress {
    /// The address; port 0 is a free one.
    pub address: SocketAddr,
    /// Host names that requests may name, besides `localhost` and the address that they came to.
    pub names: Vec<String>,
}

impl HttpAddress {
    /// Checks it.
    ///
    /// # Errors
    /// One line if others than the users of this machine could reach it, and that was not agreed to.
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

    /// Binds it.
    ///
    /// # Errors
    /// One line on why it cannot be.
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

/// Binds an address that came with an option.
pub(super) async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("listen on {address}: the port is in use (give another {option})")
        }
        _ => format!("listen on {address}: {error} (give another {option})"),
    })
}

/// An address of the command line.
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
    fn only_loopback_unless_agreed_to() {
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
