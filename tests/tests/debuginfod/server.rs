//! A debuginfod server on loopback, with the behaviour that a test chooses.

use anyhow::{Context as _, Result};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The server's answer for the one build id that it knows. For other build ids it answers 404.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Sends these bytes.
    Sends(Vec<u8>),
    /// Answers 404 here, too.
    Misses,
    /// Sends byte after byte, and never ends.
    IsSlow,
    /// Sends without end and without a length.
    IsEndless,
    /// Announces this number of bytes, and sends without end.
    Promises(u64),
    /// Does not answer.
    IsSilent,
    /// Answers with this text.
    Says(&'static str),
}

/// A server. Dropping it stops the server.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Number of requests for the known build id.
    requests: AtomicU64,
    /// Bytes sent of an answer without end.
    sent: AtomicU64,
    stopped: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Server {
    /// Starts a server that answers at once.
    pub(crate) fn start(build_id: &str, behaviour: Behaviour) -> Result<Server> {
        let server = Server::start_closed(build_id, behaviour)?;
        server.open();
        Ok(server)
    }

    /// Starts a server that answers after [`Server::open`].
    pub(crate) fn start_closed(build_id: &str, behaviour: Behaviour) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen")?;
        let (address, shared) = (listener.local_addr()?, Arc::new(Shared::default()));
        let path = format!("/buildid/{build_id}/debuginfo");
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, path) = (Arc::clone(&of_thread), path.clone());
                if shared.stopped.load(SeqCst) {
                    return;
                }
                let behaviour = behaviour.clone();
                // The client may go away at any time.
                std::thread::spawn(move || serve(stream, &path, &behaviour, &shared).ok());
            }
        });
        Ok(Server { address, shared })
    }

    pub(crate) fn open(&self) {
        if let Ok(mut open) = self.shared.open.lock() {
            *open = true;
        }
        self.shared.opened.notify_all();
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Number of requests for the known build id.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(SeqCst)
    }

    /// Bytes sent of an answer without end.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, SeqCst);
        self.open();
        // This connection wakes the listener, so that its thread ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    mut stream: TcpStream,
    path: &str,
    behaviour: &Behaviour,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    if let Ok(open) = shared.open.lock() {
        drop(shared.opened.wait_while(open, |open| !*open));
    }
    if request.split(' ').nth(1) != Some(path) {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
    shared.requests.fetch_add(1, SeqCst);
    let ok = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n");
    match behaviour {
        Behaviour::Sends(bytes) => {
            stream.write_all(ok(&format!("Content-Length: {}", bytes.len())).as_bytes())?;
            stream.write_all(bytes)
        }
        Behaviour::Misses => {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        }
        Behaviour::IsSlow => {
            stream.write_all(ok("Content-Length: 100000").as_bytes())?;
            without_end(&mut stream, shared, b"x", Duration::from_millis(50))
        }
        Behaviour::IsEndless => {
            stream.write_all(ok("Connection: close").as_bytes())?;
            without_end(&mut stream, shared, &[0; 64 << 10], Duration::ZERO)
        }
        Behaviour::Promises(bytes) => {
            stream.write_all(ok(&format!("Content-Length: {bytes}")).as_bytes())?;
            without_end(&mut stream, shared, &[0; 64 << 10], Duration::ZERO)
        }
        Behaviour::IsSilent => without_end(&mut stream, shared, b"", Duration::from_millis(50)),
        Behaviour::Says(text) => stream.write_all(text.as_bytes()),
    }
}

/// Sends `bytes` again and again, until the client closes the connection or the test ends.
fn without_end(
    stream: &mut TcpStream,
    shared: &Shared,
    bytes: &[u8],
    pause: Duration,
) -> std::io::Result<()> {
    while !shared.stopped.load(SeqCst) {
        stream.write_all(bytes)?;
        shared.sent.fetch_add(bytes.len() as u64, SeqCst);
        std::thread::sleep(pause);
    }
    Ok(())
}
