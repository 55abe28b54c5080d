//! Rewrites the `:authority` that gRPC clients send over a Unix socket into one that HTTP allows.
//!
//! A Unix socket has no host name. gRPC's core (C++, Python, Ruby) sends the socket's path with
//! `%2F` for each slash. Other clients send the path unchanged. The crate h2 refuses both as
//! malformed, and has no setting for that (hyperium/h2#487).
//!
//! samplerd does not use the authority. So each of its bytes that a host name cannot have is
//! replaced by `-` before h2 reads it.
//!
//! The length stays, and so do frames and the dynamic table of HPACK. Of a header block only the
//! borders of its fields are read (RFC 9113, section 6.2; RFC 7541, section 6). Strings in Huffman
//! code are left alone: the clients that use it send `localhost`.

/// Length of the preface of every connection: `PRI * HTTP/2.0`, and so on.
const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;
/// Frame types.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// Flags of a HEADERS frame.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Length of the stream dependency and weight at the start of a PRIORITY frame.
const PRIORITY_BYTES: usize = 5;
/// Index of `:authority` in the static table.
const AUTHORITY_INDEX: u8 = 1;
const AUTHORITY: &[u8] = b":authority";
/// Bit of a string's length that marks Huffman code.
const HUFFMAN: u8 = 0x80;
/// Value of a string's length that continues in further bytes.
const LONG: u8 = 0x7f;

/// How far the frames of a connection have been read. A read may end anywhere.
pub(super) struct Authorities {
    frame: Frame,
    field: Field,
}

/// The kind of the next bytes.
enum Frame {
    /// `bytes` bytes that are skipped, and then a frame's header, or the `block` bytes that remain
    /// of a header block.
    Other { bytes: usize, block: usize },
    /// A frame's header, and how many of its bytes have been read.
    Header([u8; FRAME_HEADER_BYTES], usize),
    /// Remaining bytes of a header block.
    Block(usize),
    /// Unread until the end: a padded header block has come.
    Unread,
}

/// The kind of the next byte of a header block.
#[derive(Clone, Copy)]
enum Field {
    /// The first byte of a field.
    First,
    /// A further byte of the index of a name, or of a whole field.
    Index(Option<Text>),
    /// The first byte of a string's length.
    Length(Text),
    /// A further byte of a string's length.
    Longer { of: Text, huffman: bool, length: usize, shift: u32 },
    /// A byte of a string, with the number of bytes left.
    Text { of: Text, huffman: bool, left: usize },
}

/// A string of a field.
#[derive(Clone, Copy)]
enum Text {
    /// A name, with the number of its bytes that equal `:authority`; `None`: another name.
    Name(Option<usize>),
    /// The value of `:authority`.
    Authority,
    /// Another value.
    Value,
}

impl Default for Authorities {
    fn default() -> Authorities {
        Authorities { frame: Frame::Other { bytes: PREFACE_BYTES, block: 0 }, field: Field::First }
    }
}

impl Authorities {
    /// Rewrites the next bytes of the client.
    pub(super) fn rewrite(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let used = match &mut self.frame {
                Frame::Other { bytes: left, block } => {
                    let used = (*left).min(bytes.len());
                    *left -= used;
                    if *left == 0 {
                        self.frame = Frame::of_block(*block);
                    }
                    used
                }
                Frame::Header(header, filled) => {
                    header[*filled] = bytes[0];
                    *filled += 1;
                    if *filled == FRAME_HEADER_BYTES {
                        let header = *header;
                        self.begin(header);
                    }
                    1
                }
                Frame::Block(left) => {
                    let used = (*left).min(bytes.len());
                    let left = *left - used;
                    self.frame = Frame::of_block(left);
                    bytes[..used].iter_mut().for_each(|byte| self.field = self.field.read(byte));
                    used
                }
                Frame::Unread => return,
            };
            bytes = &mut bytes[used..];
        }
    }

    /// Begins a frame with this header.
    fn begin(&mut self, [high, middle, low, kind, flags, ..]: [u8; FRAME_HEADER_BYTES]) {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.frame = match kind {
            HEADERS if flags & PADDED != 0 => Frame::Unread,
            HEADERS => {
                self.field = Field::First;
                let before = if flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 };
                Frame::of_frame(before.min(length), length.saturating_sub(before))
            }
            CONTINUATION => Frame::of_frame(0, length),
            _ => Frame::of_frame(length, 0),
        };
    }
}

impl Frame {
    fn of_frame(bytes: usize, block: usize) -> Frame {
        if bytes == 0 { Frame::of_block(block) } else { Frame::Other { bytes, block } }
    }

    fn of_block(left: usize) -> Frame {
        if left == 0 { Frame::Header([0; FRAME_HEADER_BYTES], 0) } else { Frame::Block(left) }
    }
}

impl Field {
    /// The kind of the byte after `byte`. A `byte` of an authority is rewritten.
    fn read(self, byte: &mut u8) -> Field {
        match self {
            Field::First => Field::after_first(*byte),
            Field::Index(next) if *byte & 0x80 == 0 => next.map_or(Field::First, Field::Length),
            Field::Index(_) => self,
            Field::Length(of) => {
                let (huffman, length) = (*byte & HUFFMAN != 0, *byte & LONG);
                let length = usize::from(length);
                match length == usize::from(LONG) {
                    true => Field::Longer { of, huffman, length, shift: 0 },
                    false => Field::of_text(of, huffman, length),
                }
            }
            Field::Longer { of, huffman, length, shift } => {
                let more = usize::from(*byte & 0x7f).checked_shl(shift).unwrap_or(0);
                let length = length.saturating_add(more);
                match *byte & 0x80 != 0 {
                    true => Field::Longer { of, huffman, length, shift: shift.saturating_add(7) },
                    false => Field::of_text(of, huffman, length),
                }
            }
            Field::Text { of, huffman, left } => {
                Field::of_text(of.read(byte, huffman), huffman, left - 1)
            }
        }
    }

    /// After the first byte of an indexed field, a literal with an indexed or following name, or a
    /// new table size.
    fn after_first(byte: u8) -> Field {
        let (mask, is_literal) = match byte.leading_zeros() {
            0 => (0x7f, false),
            1 => (0x3f, true),
            2 => (0x1f, false),
            _ => (0x0f, true),
        };
        let index = byte & mask;
        let text = match index {
            0 => Text::Name(Some(0)),
            AUTHORITY_INDEX => Text::Authority,
            _ => Text::Value,
        };
        match (is_literal, index == mask) {
            (true, false) => Field::Length(text),
            (true, true) => Field::Index(Some(text)),
            (false, true) => Field::Index(None),
            (false, false) => Field::First,
        }
    }

    /// The state with `left` bytes of a string left. At its end, its value or another field
    /// follows.
    fn of_text(of: Text, huffman: bool, left: usize) -> Field {
        match of {
            _ if left > 0 => Field::Text { of, huffman, left },
            Text::Name(Some(same)) if same == AUTHORITY.len() => Field::Length(Text::Authority),
            Text::Name(_) => Field::Length(Text::Value),
            Text::Authority | Text::Value => Field::First,
        }
    }
}

impl Text {
    /// The state of the string after one of its bytes.
    fn read(self, byte: &mut u8, huffman: bool) -> Text {
        match self {
            Text::Name(same) => {
                let is_next = |same: &usize| !huffman && AUTHORITY.get(*same) == Some(byte);
                Text::Name(same.filter(is_next).map(|same| same + 1))
            }
            Text::Authority => {
                let is_allowed = byte.is_ascii_alphanumeric() || matches!(*byte, b'-' | b'.');
                if !huffman && !is_allowed {
                    *byte = b'-';
                }
                self
            }
            Text::Value => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        [&length[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// The bytes that h2 reads of a connection with these frames, wherever its reads end.
    fn read(frames: &[u8]) -> Vec<u8> {
        let whole = [&[b'%'; PREFACE_BYTES][..], frames].concat();
        let rewritten = |pieces: usize| {
            let mut bytes = whole.clone();
            let mut authorities = Authorities::default();
            bytes.chunks_mut(pieces).for_each(|piece| authorities.rewrite(piece));
            bytes
        };
        let all = rewritten(whole.len());
        for pieces in 1..whole.len() {
            assert_eq!(rewritten(pieces), all, "in pieces of {pieces} bytes");
        }
        all[PREFACE_BYTES..].to_vec()
    }

    /// As grpcio 1.85 sends it: a name that is not indexed.
    #[test]
    fn the_path_of_a_socket_becomes_a_name() {
        let block =
            b"@\x05:path\x06/a%B/C@\n:authority\x13tmp%2Fw7%2Fraw.sock\x83\x86@\x02te\x08trailers";
        let allowed =
            b"@\x05:path\x06/a%B/C@\n:authority\x13tmp-2Fw7-2Fraw.sock\x83\x86@\x02te\x08trailers";
        let data = frame(0, 1, b"\x41\x03a/b");
        let sent = [frame(4, 0, &[0; 6]), frame(HEADERS, 4, block), data.clone()].concat();
        let wanted = [frame(4, 0, &[0; 6]), frame(HEADERS, 4, allowed), data].concat();
        assert_eq!(read(&sent), wanted);
    }

    #[test]
    fn the_authority_is_replaced_anywhere_in_a_block() {
        let path = "/run/a:b/".repeat(40);
        let name = path.replace(['/', ':'], "-");
        let long = |text: &str| {
            let more = text.len() - usize::from(LONG);
            [&[LONG, (more & 0x7f) as u8 | 0x80, (more >> 7) as u8], text.as_bytes()].concat()
        };
        // After a new table size, a long index, and similar names; with the index of `:authority`.
        let before =
            b"\x3f\xe1\x1f\xff\x80\x01\x0f\x10\x03a/b\x00\x0b:authority2\x02//\x10\x05:auth\x01/";
        for first in [0x41, 0x01, 0x11] {
            let block = |text: &str| [&before[..], &[first], &long(text), b"\x84"].concat();
            let frames = |text: &str| {
                let block = block(text);
                let (one, two) = block.split_at(60);
                let one = [&[b'/'; PRIORITY_BYTES], one].concat();
                [frame(HEADERS, PRIORITY, &one), frame(CONTINUATION, 4, two)].concat()
            };
            assert_eq!(read(&frames(&path)), frames(&name), "{first:#x}");
        }
    }

    #[test]
    fn padded_and_huffman_frames_are_unchanged() {
        let padded = frame(HEADERS, PADDED | 4, b"\x01\x41\x03a/b\0");
        let huffman = frame(HEADERS, 4, b"\x41\x83a/b");
        for frames in [huffman, [padded, frame(HEADERS, 4, b"\x41\x03a/b")].concat()] {
            assert_eq!(read(&frames), frames);
        }
    }

    #[test]
    fn any_bytes_keep_their_length() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let length = random.usize(1..600);
            let frames: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            assert_eq!(read(&frames).len(), length);
            assert_eq!(read(&frame(HEADERS, 4, &frames)).len(), length + FRAME_HEADER_BYTES);
        }
    }
}
