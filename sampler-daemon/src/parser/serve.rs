//! The main loop of the parser process.

use super::wire::{Answer, Request, Wanted};
use super::{confine, wire};
use crate::symbolize::elf::{self, Input, Symbolizer};
use sampler_common::profile::Line;
use std::io;

/// The argument that makes samplerd's program a parser. Standard input is the socket.
pub const VERB: &str = "samplerd-parser";

/// Number of requests after which everything that was read is dropped. Each file takes memory and a
/// descriptor.
const MAX_REQUESTS: usize = 256;

/// Answers requests until samplerd closes the socket.
///
/// # Errors
/// If standard input is no such socket, or sending or receiving fails.
pub fn serve() -> io::Result<()> {
    let socket = io::stdin();
    if let Err(error) = confine::confine() {
        return Ok(wire::send_ready(&socket, Some(&format!("{error:#}")))?);
    }
    wire::send_ready(&socket, None)?;
    loop {
        let symbolizer = elf::symbolizer();
        for _ in 0..MAX_REQUESTS {
            let Some(request) = wire::receive_request(&socket)? else { return Ok(()) };
            wire::send_answers(&socket, &answers(&symbolizer, &request))?;
        }
    }
}

fn answers(symbolizer: &Symbolizer, request: &Request) -> Vec<Answer> {
    let Request { path, places, debug, .. } = request;
    match request.wanted {
        Wanted::AtOffsets => elf::lines(symbolizer, path, Input::FileOffset(places), *debug),
        Wanted::AtAddresses => elf::lines(symbolizer, path, Input::VirtOffset(places), *debug),
        Wanted::BuildId => {
            let build_id = elf::build_id(path);
            let line = |function| vec![Line { function, ..Line::default() }];
            vec![build_id.map(line)]
        }
    }
}
