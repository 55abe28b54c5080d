//! A gRPC client that writes its own frames (RFC 9113, RFC 7541), for requests that a library would
//! refuse to send.

use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection to a Unix socket.
pub struct RawGrpc {
    stream: UnixStream,
    next_stream: u32,
}

impl RawGrpc {
    /// Connects.
    pub fn connect(socket: &Path) -> Result<RawGrpc> {
        let mut stream = UnixStream::connect(socket).context("connect")?;
        stream.set_read_timeout(Some(wait::DEADLINE))?;
        stream.write_all(PREFACE)?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        Ok(RawGrpc { stream, next_stream: 1 })
    }

    /// Sends a call with an empty message, without reading an answer. Returns the number of the
    /// call's stream.
    pub fn send(&mut self, block: &[u8]) -> Result<u32> {
        let number = self.next_stream;
        self.next_stream += 2;
        self.stream.write_all(&frame(HEADERS, END_HEADERS, number, block))?;
        self.stream.write_all(&frame(DATA, END_STREAM, number, &[0; 5]))?;
        Ok(number)
    }

    /// Calls a method with an empty message, and returns the message of the answer.
    /// `block` is the header block, which names the method and the authority.
    pub fn call(&mut self, block: &[u8]) -> Result<Vec<u8>> {
        let number = self.send(block)?;
        loop {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header).context("read a frame")?;
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).context("read a frame")?;
            let of = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            match header[3] {
                DATA if of == number => {
                    let message = payload.get(5..).context("a message without its length")?;
                    return Ok(message.to_vec());
                }
                RESET_STREAM | GO_AWAY => bail!("the server refuses the call: {payload:?}"),
                HEADERS if of == number && header[4] & END_STREAM != 0 => {
                    bail!("no message: {payload:?}")
                }
                _ => {}
            }
        }
    }
}

/// The header block of a call, in literal fields as gRPC's core writes them. The first byte and the
/// name of the authority field are given.
pub fn header_block(path: &str, authority: (&[u8], &str)) -> Result<Vec<u8>> {
    let mut block = Vec::new();
    let mut field = |name: &[u8], value: &str| -> Result<()> {
        ensure!(value.len() < 127, "{value}: longer than one byte says");
        block.extend(name);
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
        Ok(())
    };
    field(b"@\x05:path", path)?;
    field(authority.0, authority.1)?;
    // `:method: POST` and `:scheme: http` are entries of the static table.
    field(b"\x83\x86@\x0ccontent-type", "application/grpc")?;
    field(b"@\x02te", "trailers")?;
    Ok(block)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
