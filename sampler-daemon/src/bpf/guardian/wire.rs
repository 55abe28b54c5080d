//! The messages between samplerd and its guardian. Both processes run the same program, so numbers
//! are sent in the machine's byte order.

use crate::bpf::request::{Hook, Kind, Point, Request};
use rustix::io::{Errno, IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of points in one request. A request is one message, and a socket takes some 200
/// KiB at a time.
pub(super) const MAX_POINTS: usize = 2048;
/// Descriptors in a request: the program, the file, and the socket for the answer.
const DESCRIPTORS: usize = 3;
/// Bytes of a request's head: kind, hook, type of the PMU, pid.
const HEAD_BYTES: usize = 4 * 4;
/// Bytes of a point: offset, cookie, counter.
const POINT_BYTES: usize = 3 * 8;
/// Bytes of an answer: error number, CPU time.
const RESULT_BYTES: usize = 4 + 8;

/// A received request.
#[derive(Debug)]
pub(super) struct Received {
    program: OwnedFd,
    file: OwnedFd,
    /// The socket for the answer. When samplerd closes its end, the guardian detaches.
    pub(super) socket: OwnedFd,
    kind: Kind,
    pid: Option<u32>,
    points: Vec<Point>,
}

impl Received {
    pub(super) fn request(&self) -> Request<'_> {
        let (program, file) = (self.program.as_fd(), self.file.as_fd());
        Request { program, file, kind: self.kind, pid: self.pid, points: &self.points }
    }
}

fn encode(request: &Request<'_>) -> Vec<u8> {
    let (kind, hook, pmu) = match request.kind {
        Kind::Multi(hook) => (0, hook, 0),
        Kind::Perf(hook, pmu) => (1, hook, pmu),
    };
    // No process has pid 0.
    let head = [kind, hook as u32, pmu, request.pid.unwrap_or(0)];
    let mut bytes: Vec<u8> = head.iter().flat_map(|it| it.to_ne_bytes()).collect();
    for point in request.points {
        let words = [point.offset, point.cookie, point.counter];
        bytes.extend(words.iter().flat_map(|it| it.to_ne_bytes()));
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<(Kind, Option<u32>, Vec<Point>)> {
    let (head, points) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let field = |at: usize| Some(u32::from_ne_bytes(*head[at * 4..].first_chunk()?));
    let hook = match field(1)? {
        of if of == Hook::Session as u32 => Hook::Session,
        of if of == Hook::Entry as u32 => Hook::Entry,
        of if of == Hook::Return as u32 => Hook::Return,
        _ => return None,
    };
    let kind = match field(0)? {
        0 => Kind::Multi(hook),
        1 => Kind::Perf(hook, field(2)?),
        _ => return None,
    };
    let point = |bytes: &[u8]| {
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes[at * 8..].first_chunk()?));
        Some(Point { offset: word(0)?, cookie: word(1)?, counter: word(2)? })
    };
    let (points, rest) = points.as_chunks::<POINT_BYTES>();
    let points = points.iter().map(|bytes| point(bytes)).collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some((kind, Some(field(3)?).filter(|pid| *pid != 0), points))
}

/// Sends a request; the guardian answers through `answer`.
pub(super) fn send_request(
    control: impl AsFd,
    request: &Request<'_>,
    answer: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let bytes = encode(request);
    let descriptors: [BorrowedFd<'_>; DESCRIPTORS] = [answer, request.program, request.file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let parts = [IoSlice::new(&bytes)];
    retry_on_intr(|| sendmsg(&control, &parts, &mut ancillary, SendFlags::NOSIGNAL)).map(|_| ())
}

/// Receives a request; `None`: the sender has closed the socket. A request that lost a descriptor,
/// because this process can open no more, is dropped. The sender notices it by the closed socket.
pub(super) fn receive_request(control: impl AsFd) -> io::Result<Option<Option<Received>>> {
    let mut bytes = vec![0; HEAD_BYTES + MAX_POINTS * POINT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = retry_on_intr(|| recvmsg(&control, &mut parts, &mut ancillary, flags))?.bytes;
    if length == 0 {
        return Ok(None);
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = descriptors.flatten();
    let all = (descriptors.next(), descriptors.next(), descriptors.next());
    let (Some(socket), Some(program), Some(file)) = all else { return Ok(Some(None)) };
    let decoded = decode(bytes.get(..length).unwrap_or_default());
    Ok(Some(decoded.map(|(kind, pid, points)| Received {
        program,
        file,
        socket,
        kind,
        pid,
        points,
    })))
}

/// Sends the result of a request, and the CPU time used for it.
pub(super) fn send_result(socket: impl AsFd, error: i32, ns: u64) -> Result<(), Errno> {
    let mut bytes = error.to_ne_bytes().to_vec();
    bytes.extend(ns.to_ne_bytes());
    retry_on_intr(|| send(&socket, &bytes, SendFlags::NOSIGNAL)).map(|_| ())
}

/// Waits for the result of a request.
pub(super) fn receive_result(socket: impl AsFd) -> io::Result<(io::Result<()>, u64)> {
    let mut bytes = [0; RESULT_BYTES];
    let (_, length) = retry_on_intr(|| recv(&socket, &mut bytes[..], RecvFlags::empty()))?;
    let (error, ns) = bytes.split_first_chunk::<4>().ok_or(io::ErrorKind::InvalidData)?;
    let (error, ns) = (i32::from_ne_bytes(*error), ns.first_chunk::<8>());
    let ns = ns.filter(|_| length == RESULT_BYTES).ok_or(io::ErrorKind::UnexpectedEof)?;
    let result = if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    Ok((result, u64::from_ne_bytes(*ns)))
}

/// Sends the CPU time used for detaching.
pub(super) fn send_spent(socket: impl AsFd, ns: u64) {
    // The send fails if the receiver has closed the socket.
    let _ = retry_on_intr(|| send(&socket, &ns.to_ne_bytes(), SendFlags::NOSIGNAL));
}

/// The next CPU time used for detaching; `None`: all times were received.
pub(super) fn receive_spent(socket: impl AsFd, flags: RecvFlags) -> Result<Option<u64>, Errno> {
    let mut bytes = [0; 8];
    let (_, length) = retry_on_intr(|| recv(&socket, &mut bytes[..], flags))?;
    Ok((length == bytes.len()).then(|| u64::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::guardian::pair;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn requests_arrive_as_sent() {
        let (ours, its) = pair().unwrap();
        let (answer, its_answer) = pair().unwrap();
        let [program, file] = ["/dev/null", "/dev/zero"].map(|path| File::open(path).unwrap());
        let points: Vec<Point> = (0..MAX_POINTS as u64)
            .map(|number| Point { offset: number, cookie: u64::MAX - number, counter: 7 })
            .collect();
        for (kind, pid, count) in [
            (Kind::Multi(Hook::Session), None, MAX_POINTS),
            (Kind::Multi(Hook::Return), Some(7), 1),
            (Kind::Perf(Hook::Entry, 9), Some(u32::MAX), 0),
        ] {
            let (points, program, file) = (&points[..count], program.as_fd(), file.as_fd());
            let request = Request { program, kind, file, pid, points };
            send_request(&ours, &request, its_answer.as_fd()).unwrap();
            let received = receive_request(&its).unwrap().unwrap().unwrap();
            let there = received.request();
            assert_eq!((there.kind, there.pid, there.points), (kind, pid, points));
            let device = |of: BorrowedFd<'_>| {
                File::from(of.try_clone_to_owned().unwrap()).metadata().unwrap().rdev()
            };
            assert_eq!(device(there.program), device(program));
            assert_eq!(device(there.file), device(file));
            send_result(&received.socket, libc::ESRCH, 5).unwrap();
            let (result, ns) = receive_result(&answer).unwrap();
            assert_eq!((result.unwrap_err().raw_os_error(), ns), (Some(libc::ESRCH), 5));
        }
        drop(its_answer);
        assert!(receive_result(&answer).is_err());
        drop(ours);
        assert!(receive_request(&its).unwrap().is_none());
    }

    #[test]
    fn malformed_requests_are_refused() {
        for length in [0, 1, HEAD_BYTES - 1, HEAD_BYTES + 1, HEAD_BYTES + POINT_BYTES - 1] {
            assert_eq!(decode(&vec![0; length]), None, "{length}");
        }
        assert_eq!(decode(&[0xff; HEAD_BYTES]), None);
    }
}
