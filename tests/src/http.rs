//! A client of HTTP/1.1 that makes one request on one connection. Tests can send requests that no
//! library would send.

use crate::wait;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.body).context("the body is no UTF-8")
    }
}

/// Asks for `path` at `address`. The `Host` is `address`.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    ask(address, "GET", path, &address.to_string())
}

/// Asks for `path`, with a method and a `Host` of choice.
pub fn ask(address: SocketAddr, method: &str, path: &str, host: &str) -> Result<Answer> {
    send(address, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
}

/// Sends `request` unchanged, and reads the answer.
pub fn send(address: SocketAddr, request: &str) -> Result<Answer> {
    let mut stream = begin(address, request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).context("read the answer")?;
    parse(&bytes).with_context(|| format!("the answer to {request:?}"))
}

/// Sends `request` unchanged, and leaves the connection to the caller.
pub fn begin(address: SocketAddr, request: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("connect {address}"))?;
    stream.set_read_timeout(Some(wait::DEADLINE))?;
    stream.write_all(request.as_bytes()).context("send the request")?;
    Ok(stream)
}

fn parse(bytes: &[u8]) -> Result<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("no end of head")?;
    let head = std::str::from_utf8(&bytes[..end]).context("the head is no UTF-8")?;
    let mut lines = head.split("\r\n");
    let first = lines.next().context("no status line")?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.with_context(|| format!("status line {first:?}"))?.parse()?;
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_lowercase(), value.to_owned()))
    };
    let headers: Option<Vec<_>> = lines.map(header).collect();
    let answer = Answer {
        status,
        headers: headers.context("a header line without a colon")?,
        body: bytes[end + 4..].to_vec(),
    };
    let length = answer.header("content-length").map(str::parse::<usize>).transpose()?;
    ensure!(
        answer.body.is_empty() || length == Some(answer.body.len()),
        "{length:?} bytes were promised, {} came",
        answer.body.len()
    );
    Ok(answer)
}
