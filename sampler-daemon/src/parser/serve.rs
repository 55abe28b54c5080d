//! The main loop of the parser process.

use super::wire::{Answer, Request, Wanted};
use super::{confine, wire};
use crate::symbolize::elf::{self, Places, Symbolizer, Unreadable};
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
        let mut symbolizer = Symbolizer::new();
        for _ in 0..MAX_REQUESTS {
            let Some(request) = wire::receive_request(&socket)? else { return Ok(()) };
            match answers(&mut symbolizer, &request) {
                Ok(answers) => wire::send_answers(&socket, &answers)?,
                Err(Unreadable) => wire::send_unreadable(&socket)?,
            }
        }
    }
}

fn answers(symbolizer: &mut Symbolizer, request: &Request) -> Result<Vec<Answer>, Unreadable> {
    let Request { path, places, debug, .. } = request;
    match request.wanted {
        Wanted::Lines => symbolizer.lines(path, Places::Offsets(places), *debug),
        Wanted::LinesOfAddresses => symbolizer.lines(path, Places::Addresses(places), *debug),
        Wanted::BuildId => {
            let build_id = elf::build_id(path);
            let line = |function| vec![Line { function, ..Line::default() }];
            Ok(vec![build_id.map(line)])
        }
    }
}
