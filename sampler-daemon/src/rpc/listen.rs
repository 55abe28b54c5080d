//! Where the API is served: a Unix socket, or TCP on loopback.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};
use tokio::net::{TcpListener, UnixListener};

/// Where `samplerd` listens and `sampler` connects if nothing else is said.
pub const DEFAULT: &str = "unix:/run/sampler/samplerd.sock";
/// Bytes of a Unix socket's path, without the nul behind it.
const LONGEST_PATH: usize = 107;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP, loopback only.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("address {text:?}: give unix:PATH or tcp:127.0.0.1:PORT");
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(wrong())
            } else {
                Ok(Address::Unix(socket_path(path)?))
            };
        }
        let address: SocketAddr =
            text.strip_prefix("tcp:").ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
        let loopback = match address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        };
        if !loopback {
            return Err(format!(
                "address {text:?}: only loopback is served without TLS (give tcp:127.0.0.1:PORT)"
            ));
        }
        Ok(Address::Tcp(address))
    }
}

/// The path of a Unix socket.
///
/// # Errors
/// One line, if the kernel has no room for it (`sun_path` of unix(7)).
pub fn socket_path(path: &str) -> Result<PathBuf, String> {
    match path.len() {
        0..=LONGEST_PATH => Ok(path.into()),
        bytes => Err(format!(
            "a path of {bytes} bytes is too long for a Unix socket (give one of {LONGEST_PATH} or fewer)"
        )),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    /// On a Unix socket, which is removed when this is dropped.
    Unix(UnixListener, SocketFile),
    /// On TCP.
    Tcp(TcpListener),
}

/// A socket in the file system; removed when dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds; the socket is for its owner only. Takes over a socket that nobody listens on any more.
    pub async fn bind(address: &Address) -> Result<Listener, String> {
        let failed = |error: io::Error| format!("listen on {address}: {error}");
        match address {
            Address::Tcp(tcp) => {
                let listener =
                    TcpListener::bind(tcp).await.map_err(|error| match error.kind() {
                        io::ErrorKind::AddrInUse => {
                            format!(
                                "listen on {address}: the port is in use (give another --listen)"
                            )
                        }
                        _ => failed(error),
                    })?;
                tracing::warn!(
                    "{address}: every user of this machine can read the profiles there, and change how processes are sampled"
                );
                Ok(Listener::Tcp(listener))
            }
            Address::Unix(path) => {
                prepare(path, address)?;
                let listener = bind_private(path).map_err(failed)?;
                Ok(Listener::Unix(listener, SocketFile(path.clone())))
            }
        }
    }

    /// The address in force (a TCP port of 0 has become a real one).
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Unix(_, SocketFile(path)) => Ok(Address::Unix(path.clone())),
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
        }
    }
}

/// Makes room for the socket, or says who has it.
fn prepare(path: &Path, address: &Address) -> Result<(), String> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // Only our own default place is made; a typing error must not make directories.
        if address.to_string() == DEFAULT {
            fs::create_dir_all(directory)
                .map_err(|error| format!("make {}: {error}", directory.display()))?;
        }
        if !directory.is_dir() {
            return Err(format!(
                "listen on {address}: {} is no directory (make it, or give another --listen)",
                directory.display()
            ));
        }
    }
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(metadata) => {
            use std::os::unix::fs::FileTypeExt as _;
            if !metadata.file_type().is_socket() {
                return Err(format!(
                    "listen on {address}: there is a file that is no socket (give another --listen)"
                ));
            }
        }
    }
    if UnixStream::connect(path).is_ok() {
        return Err(format!(
            "listen on {address}: another samplerd serves there (stop it, or give another --listen)"
        ));
    }
    fs::remove_file(path).map_err(|error| format!("remove the stale {}: {error}", path.display()))
}

/// Binds under a name of our own, closes it to others, then gives it its real name: at no moment can
/// anybody else connect.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let mut private = path.as_os_str().to_owned();
    private.push(format!(".{}", std::process::id()));
    let private = PathBuf::from(private);
    let listener = UnixListener::bind(&private)?;
    let named = fs::set_permissions(&private, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&private, path));
    if let Err(error) = named {
        let _ = fs::remove_file(&private);
        return Err(error);
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!("unix:/a/b".parse(), Ok(Address::Unix("/a/b".into())));
        let path = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1)).parse::<Address>();
        assert!(path(107).is_ok() && path(108).unwrap_err().contains("a path of 108 bytes"));
        assert!("tcp:127.0.0.1:80".parse::<Address>().is_ok());
        assert!("tcp:[::1]:80".parse::<Address>().is_ok());
        for wrong in ["", "unix:", "/a/b", "tcp:10.0.0.1:80", "tcp:127.0.0.1", "tcp:localhost:1"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_served_socket_is_refused_and_a_stale_one_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("s"));
        let first = Listener::bind(&address).await.unwrap();
        let mode = fs::metadata(directory.path().join("s")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Listener::bind(&address).await.unwrap_err().contains("another samplerd"));
        // A daemon that was killed leaves its socket.
        let Listener::Unix(listener, file) = first else { unreachable!() };
        drop(listener);
        std::mem::forget(file);
        let second = Listener::bind(&address).await.unwrap();
        drop(second);
        assert!(!directory.path().join("s").exists());
    }
}
