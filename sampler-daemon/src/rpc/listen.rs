//! Where the API is served: on a Unix socket, on TCP on loopback, or by TLS. And who can connect to
//! the socket.

use crate::run_directory;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};
use tokio::net::{TcpListener, UnixListener};

/// The default address: `samplerd` listens on it, and `sampler` connects to it.
pub const DEFAULT: &str = "unix:/run/sampler/samplerd.sock";
/// Bytes of a Unix socket's path without its terminating nul.
const LONGEST_PATH: usize = 107;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP, loopback only.
    Tcp(SocketAddr),
    /// TLS over TCP, for clients with a certificate.
    Tls(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong =
            || format!("address {text:?}: give unix:PATH, tcp:127.0.0.1:PORT, or tls:ADDRESS:PORT");
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(wrong())
            } else {
                Ok(Address::Unix(socket_path(path)?))
            };
        }
        let socket_address = |text: &str| text.parse::<SocketAddr>().map_err(|_| wrong());
        if let Some(address) = text.strip_prefix("tls:") {
            return socket_address(address).map(Address::Tls);
        }
        let address = socket_address(text.strip_prefix("tcp:").ok_or_else(wrong)?)?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "address {text:?}: only loopback is served without TLS (give tcp:127.0.0.1:PORT, or tls:{address})"
            ));
        }
        Ok(Address::Tcp(address))
    }
}

/// The path of a Unix socket.
///
/// # Errors
/// One line, if the path does not fit into `sun_path` of unix(7).
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
            Address::Tls(address) => write!(f, "tls:{address}"),
        }
    }
}

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    /// On a Unix socket, which is removed on drop.
    Unix(UnixListener, SocketFile),
    /// On TCP.
    Tcp(TcpListener),
    /// On TCP, for TLS.
    Tls(TcpListener),
}

/// Who can connect to a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits; clients with write permission can connect (unix(7)).
    pub mode: u32,
    /// Group of the socket; `None`: the group of samplerd.
    pub group: Option<u32>,
}

impl Access {
    /// Access for the user of samplerd only.
    pub const OWNER: Access = Access { mode: 0o600, group: None };
}

/// A socket in the file system. It is removed on drop, unless the path is another file by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // It is no error if the file is gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Listener {
    /// Binds. A socket on which no process listens any more is replaced.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub async fn bind(address: &Address, access: Access) -> Result<Listener, String> {
        let failed = |error: io::Error| format!("listen on {address}: {error}");
        match address {
            Address::Tcp(tcp) | Address::Tls(tcp) => {
                let listener =
                    TcpListener::bind(tcp).await.map_err(|error| match error.kind() {
                        io::ErrorKind::AddrInUse => {
                            format!(
                                "listen on {address}: the port is in use (give another --listen)"
                            )
                        }
                        _ => failed(error),
                    })?;
                Ok(match address {
                    Address::Tls(_) => Listener::Tls(listener),
                    _ => Listener::Tcp(listener),
                })
            }
            Address::Unix(path) => {
                prepare(path, address)?;
                let listener = bind_private(path, access).map_err(failed)?;
                let file = SocketFile::new(path).map_err(failed)?;
                Ok(Listener::Unix(listener, file))
            }
        }
    }

    /// The actual address (a TCP port of 0 has become a real one).
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Unix(_, file) => Ok(Address::Unix(file.path.clone())),
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Tls(listener) => listener.local_addr().map(Address::Tls),
        }
    }
}

/// Removes a stale socket. An error says what prevents a new one.
fn prepare(path: &Path, address: &Address) -> Result<(), String> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // Only the default directory is made: a typing error must not make directories.
        if address.to_string() == DEFAULT {
            run_directory::make()
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

/// Binds under a private name, sets the permissions, then renames the socket. At no moment can
/// anybody else connect.
fn bind_private(path: &Path, access: Access) -> io::Result<UnixListener> {
    let mut private = path.as_os_str().to_owned();
    private.push(format!(".{}", std::process::id()));
    let private = PathBuf::from(private);
    let listener = UnixListener::bind(&private)?;
    // The owner is set first, since a change of the owner may clear mode bits.
    let named = std::os::unix::fs::lchown(&private, None, access.group)
        .and_then(|()| fs::set_permissions(&private, fs::Permissions::from_mode(access.mode)))
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
    fn listen_addresses_are_parsed_or_refused() {
        assert_eq!("unix:/a/b".parse(), Ok(Address::Unix("/a/b".into())));
        let path = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1)).parse::<Address>();
        assert!(path(107).is_ok() && path(108).unwrap_err().contains("a path of 108 bytes"));
        assert!("tcp:127.0.0.1:80".parse::<Address>().is_ok());
        assert!("tcp:[::1]:80".parse::<Address>().is_ok());
        let everywhere = "tls:0.0.0.0:80".parse::<Address>().unwrap();
        assert_eq!(everywhere.to_string(), "tls:0.0.0.0:80");
        for wrong in [
            "tls:",
            "tls:h:80",
            "",
            "unix:",
            "/a/b",
            "tcp:10.0.0.1:80",
            "tcp:127.0.0.1",
            "tcp:localhost:1",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_served_socket_is_refused_and_a_stale_one_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Unix(directory.path().join("s"));
        let first = Listener::bind(&address, Access::OWNER).await.unwrap();
        let mode = fs::metadata(directory.path().join("s")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            Listener::bind(&address, Access::OWNER).await.unwrap_err().contains("another samplerd")
        );
        // A daemon that was killed leaves its socket.
        let Listener::Unix(listener, file) = first else { unreachable!() };
        drop(listener);
        std::mem::forget(file);
        let second = Listener::bind(&address, Access::OWNER).await.unwrap();
        drop(second);
        assert!(!directory.path().join("s").exists());
    }

    #[tokio::test]
    async fn only_our_own_socket_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let access = Access { mode: 0o666, group: None };
        let listener = Listener::bind(&Address::Unix(path.clone()), access).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        fs::rename(&path, directory.path().join("ours")).unwrap();
        fs::write(&path, "of somebody else").unwrap();
        drop(listener);
        assert_eq!(fs::read_to_string(&path).unwrap(), "of somebody else");
    }
}
