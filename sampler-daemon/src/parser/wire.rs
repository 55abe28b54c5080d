//! The messages between samplerd and its parser, one packet each. The parser's messages are checked
//! here, because a file may have taken the parser over.

use rustix::io::{Errno, IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};
use sampler_common::profile::Line;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of places in one request.
pub(super) const MAX_PLACES: usize = 4096;
/// Maximum bytes of a path: the kernel's own bound.
pub(super) const MAX_PATH_BYTES: usize = 4096;
/// Maximum length of a name. A longer name is cut.
pub(crate) const MAX_NAME_BYTES: usize = 16 << 10;
/// Maximum number of functions that are inlined into one another at one address. If there are more,
/// the outermost functions are left out.
const MAX_LINES: usize = 256;
/// Maximum size of all lines of one address. If the lines are larger, the outermost lines are left
/// out.
const MAX_ADDRESS_BYTES: usize = 96 << 10;
/// Size of answers at which a packet is sent.
const FULL_BYTES: usize = 32 << 10;
/// Maximum size of a packet. A socket accepts some 200 KiB at a time.
const MAX_PACKET_BYTES: usize = FULL_BYTES + MAX_ADDRESS_BYTES + 1;

/// The file exists; its descriptor follows.
const FOUND: u8 = b'F';
/// The file does not exist.
const NOT_FOUND: u8 = b'N';
/// The first byte of each kind of packet of the parser.
const READY: u8 = b'R';
const UNCONFINED: u8 = b'U';
const OPEN: u8 = b'O';
const ANSWERS: u8 = b'A';
const UNREADABLE: u8 = b'X';

/// The lines at one address; `None` if nothing is known.
pub(super) type Answer = Option<Vec<Line>>;

/// What a request asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Wanted {
    /// Lines at file offsets.
    Lines,
    /// Lines at addresses as the file states them.
    LinesOfAddresses,
    /// The file's build id, as the function of one line. The request has no places.
    BuildId,
}

impl Wanted {
    const ALL: [Wanted; 3] = [Wanted::Lines, Wanted::LinesOfAddresses, Wanted::BuildId];
}

/// A request to the parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// What the request asks for.
    pub(super) wanted: Wanted,
    /// Whether debug information is read in addition to symbols.
    pub(super) debug: bool,
    /// The path of the file.
    pub(super) path: String,
    /// The places in the file whose lines are wanted.
    pub(super) places: Vec<u64>,
}

/// A message of the parser.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The parser is ready for requests.
    Ready,
    /// The parser could not drop its rights, and ends.
    Unconfined(String),
    /// The parser asks for the file at a path.
    Open(Vec<u8>),
    /// Answers, in the order of the places.
    Answers(Vec<Answer>),
    /// The file's debug information cannot be read. No answers follow.
    Unreadable,
}

/// Sends a request.
pub(super) fn send_request(socket: impl AsFd, request: &Request) -> Result<(), Errno> {
    let mut bytes = vec![request.wanted as u8, u8::from(request.debug)];
    put(&mut bytes, &request.path);
    bytes.extend(request.places.iter().flat_map(|place| place.to_ne_bytes()));
    send_packet(socket, &bytes)
}

/// Waits for a request. Returns `None` if no request will follow.
pub(super) fn receive_request(socket: impl AsFd) -> Result<Option<Request>, Errno> {
    let mut bytes = vec![0; 2 + 4 + MAX_PATH_BYTES + 8 * MAX_PLACES];
    let length = receive_packet(socket, &mut bytes)?;
    Ok(decode_request(&bytes[..length]))
}

pub(super) fn decode_request(bytes: &[u8]) -> Option<Request> {
    let ([wanted, debug], mut rest) = bytes.split_first_chunk()?;
    let wanted = Wanted::ALL.into_iter().find(|of| *of as u8 == *wanted)?;
    let path = take_text(&mut rest, MAX_PATH_BYTES)?;
    let (places, rest) = rest.as_chunks::<8>();
    let places = places.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    rest.is_empty().then_some(Request { wanted, debug: *debug != 0, path, places })
}

/// Reports that the parser is ready, or why it is not.
pub(super) fn send_ready(socket: impl AsFd, refusal: Option<&str>) -> Result<(), Errno> {
    let Some(why) = refusal else { return send_packet(socket, &[READY]) };
    let mut bytes = vec![UNCONFINED];
    bytes.extend(cut(why, MAX_NAME_BYTES).bytes());
    send_packet(socket, &bytes)
}

/// Sends answers in packets of about `FULL_BYTES`.
pub(super) fn send_answers(socket: impl AsFd, answers: &[Answer]) -> Result<(), Errno> {
    let mut bytes = vec![ANSWERS];
    for answer in answers {
        encode(&mut bytes, answer.as_deref().unwrap_or_default());
        if bytes.len() >= FULL_BYTES {
            send_packet(&socket, &bytes)?;
            bytes.truncate(1);
        }
    }
    if bytes.len() > 1 { send_packet(&socket, &bytes) } else { Ok(()) }
}

/// Reports that the file's debug information cannot be read.
pub(super) fn send_unreadable(socket: impl AsFd) -> Result<(), Errno> {
    send_packet(socket, &[UNREADABLE])
}

fn encode(bytes: &mut Vec<u8>, lines: &[Line]) {
    let (start, mut count) = (bytes.len(), 0_u32);
    bytes.extend(count.to_ne_bytes());
    for line in lines.iter().take(MAX_LINES) {
        let end = bytes.len();
        put(bytes, cut(&line.function, MAX_NAME_BYTES));
        put(bytes, cut(&line.file, MAX_NAME_BYTES));
        bytes.extend(line.line.to_ne_bytes());
        if bytes.len() - start > MAX_ADDRESS_BYTES {
            bytes.truncate(end);
            break;
        }
        count += 1;
    }
    bytes[start..start + 4].copy_from_slice(&count.to_ne_bytes());
}

/// Waits for a message of the parser. Returns `None` if the parser has ended or sent an invalid
/// message.
pub(super) fn receive_message(socket: impl AsFd, buffer: &mut Vec<u8>) -> Option<Message> {
    buffer.resize(MAX_PACKET_BYTES, 0);
    let length = receive_packet(socket, buffer).ok()?;
    decode_message(&buffer[..length])
}

pub(super) fn decode_message(bytes: &[u8]) -> Option<Message> {
    let (kind, mut rest) = bytes.split_first()?;
    match *kind {
        READY => rest.is_empty().then_some(Message::Ready),
        UNREADABLE => rest.is_empty().then_some(Message::Unreadable),
        UNCONFINED => Some(Message::Unconfined(String::from_utf8_lossy(rest).into_owned())),
        OPEN => (rest.len() < MAX_PATH_BYTES).then(|| Message::Open(rest.to_vec())),
        ANSWERS => {
            let mut answers = Vec::new();
            while !rest.is_empty() {
                answers.push(decode(&mut rest)?);
            }
            Some(Message::Answers(answers))
        }
        _ => None,
    }
}

fn decode(bytes: &mut &[u8]) -> Option<Answer> {
    let count = usize::try_from(take_number(bytes)?).ok().filter(|count| *count <= MAX_LINES)?;
    let mut lines = Vec::new();
    for _ in 0..count {
        let function = take_text(bytes, MAX_NAME_BYTES)?;
        let file = take_text(bytes, MAX_NAME_BYTES)?;
        lines.push(Line { function, file, line: take_number(bytes)? });
    }
    Some(Some(lines).filter(|lines| !lines.is_empty()))
}

/// Asks for a file by its path. This function runs in a signal handler: it must not allocate.
pub(super) fn ask_for_file(socket: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let kind = [OPEN];
    let parts = [IoSlice::new(&kind), IoSlice::new(path)];
    let mut nothing = SendAncillaryBuffer::default();
    retry_on_intr(|| sendmsg(socket, &parts, &mut nothing, SendFlags::NOSIGNAL))?;
    let mut said = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut said)];
    retry_on_intr(|| recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.filter(|_| said == [FOUND]).ok_or(Errno::NOENT)
}

/// Sends a file that the parser asked for, or reports that there is none.
pub(super) fn send_file(socket: impl AsFd, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let Some(file) = file else { return send_packet(socket, &[NOT_FOUND]) };
    let descriptors = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let found = [FOUND];
    let parts = [IoSlice::new(&found)];
    retry_on_intr(|| sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)).map(drop)
}

fn send_packet(socket: impl AsFd, bytes: &[u8]) -> Result<(), Errno> {
    retry_on_intr(|| send(&socket, bytes, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives a packet. Returns its length; 0 at the end. A packet that is longer than the buffer is
/// cut, so that decoding it fails.
fn receive_packet(socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    retry_on_intr(|| recv(&socket, &mut *buffer, RecvFlags::empty())).map(|(length, _)| length)
}

fn put(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_ne_bytes());
    bytes.extend(text.bytes());
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_ne_bytes(*number))
}

fn take_text(bytes: &mut &[u8], max_bytes: usize) -> Option<String> {
    let length = usize::try_from(take_number(bytes)?).ok().filter(|length| *length <= max_bytes)?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// Returns the beginning of a text, cut at a character boundary.
fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(function: &str, number: u32) -> Line {
        Line { function: function.to_owned(), file: "a/b.c".to_owned(), line: number }
    }

    fn sent(answers: &[Answer]) -> Vec<Answer> {
        let (ours, its) = super::super::pair().unwrap();
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || send_answers(&its, answers).unwrap());
            let mut buffer = Vec::new();
            while let Some(Message::Answers(some)) = receive_message(&ours, &mut buffer) {
                received.extend(some);
            }
        });
        received
    }

    #[test]
    fn answers_arrive_as_sent() {
        let answers: Vec<Answer> = (0..5000)
            .map(|at| (at % 3 > 0).then(|| vec![line(&format!("é{at}"), at), line("outer", 0)]))
            .collect();
        assert_eq!(sent(&answers), answers);
        assert!(sent(&[]).is_empty());
    }

    #[test]
    fn an_unreadable_file_is_reported() {
        let (ours, its) = super::super::pair().unwrap();
        send_unreadable(&its).unwrap();
        assert_eq!(receive_message(&ours, &mut Vec::new()), Some(Message::Unreadable));
    }

    #[test]
    fn long_names_and_many_lines_are_cut() {
        let long = Some(vec![line(&"é".repeat(MAX_NAME_BYTES), 1)]);
        let many = Some(vec![line("f", 1); MAX_LINES + 1]);
        let large = Some(vec![line(&"x".repeat(MAX_NAME_BYTES), 1); 10]);
        let received = sent(&[long, many, large, None]);
        let lines = |at: usize| received[at].as_ref().unwrap();
        assert_eq!(lines(0)[0].function, "é".repeat(MAX_NAME_BYTES / 2));
        assert_eq!((lines(1).len(), lines(2).len()), (MAX_LINES, 5));
        assert_eq!(received[3], None);
    }

    #[test]
    fn requests_and_files_arrive_as_sent() {
        use std::os::unix::fs::MetadataExt as _;
        let (ours, its) = super::super::pair().unwrap();
        for wanted in Wanted::ALL {
            let (path, places) = ("/x/é".to_owned(), vec![7; MAX_PLACES]);
            let request = Request { wanted, debug: true, path, places };
            send_request(&ours, &request).unwrap();
            assert_eq!(receive_request(&its).unwrap(), Some(request));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        send_file(&ours, Some(file.as_fd())).unwrap();
        let received = std::fs::File::from(ask_for_file(its.as_fd(), b"/x").unwrap());
        assert_eq!(received.metadata().unwrap().rdev(), file.metadata().unwrap().rdev());
        send_file(&ours, None).unwrap();
        assert_eq!(ask_for_file(its.as_fd(), b"/y").unwrap_err(), Errno::NOENT);
        let mut buffer = Vec::new();
        for path in [b"/x", b"/y"] {
            assert_eq!(receive_message(&ours, &mut buffer), Some(Message::Open(path.to_vec())));
        }
        drop(its);
        assert_eq!(receive_message(&ours, &mut buffer), None);
    }

    proptest! {
        /// A parser that was taken over may send anything. Decoding ends, and its result stays
        /// within the bounds.
        #[test]
        fn any_packet_is_decoded_or_refused(kind in prop::sample::select(vec![READY, UNCONFINED, OPEN, ANSWERS, UNREADABLE, 0]), rest in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&[kind], &rest[..]].concat();
            if let Some(Message::Answers(answers)) = decode_message(&bytes) {
                prop_assert!(answers.len() <= rest.len() / 4);
            }
            let _ = decode_request(&bytes);
        }
    }
}
