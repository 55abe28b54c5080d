//! Whether a file has grown or was rewritten in place, by comparing a few pieces of its earlier
//! contents.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Pieces that are compared, evenly over the file. A line of another length shifts all later lines,
/// so the last piece differs.
const PIECES: u64 = 16;
const PIECE_BYTES: usize = 128;

/// Pieces of a file at its last check.
#[derive(Debug, Default)]
pub(super) struct Contents {
    size: u64,
    pieces: Vec<(u64, [u8; PIECE_BYTES])>,
}

impl Contents {
    pub(super) fn of(file: &File) -> Contents {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let bytes = PIECE_BYTES as u64;
        let room = size.saturating_sub(bytes);
        let mut at: Vec<u64> = (0..=PIECES).map(|piece| room / PIECES * piece).collect();
        at.push(room);
        at.dedup();
        let pieces = at.into_iter().map(|at| (at, piece(file, at, size))).collect();
        Contents { size, pieces }
    }

    /// Checks again; false if the earlier contents have changed.
    pub(super) fn go_on(&mut self, file: &File) -> bool {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let stays = size >= self.size
            && self.pieces.iter().all(|(at, was)| piece(file, *at, self.size) == *was);
        *self = Contents::of(file);
        stays
    }
}

/// The piece at an offset of a file of this size. Bytes behind the size, and bytes that cannot be
/// read, are zero.
fn piece(file: &File, at: u64, size: u64) -> [u8; PIECE_BYTES] {
    let mut piece = [0; PIECE_BYTES];
    let length = size.saturating_sub(at).min(PIECE_BYTES as u64) as usize;
    if file.read_exact_at(&mut piece[..length], at).is_err() {
        piece = [0; PIECE_BYTES];
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_grown_text_is_distinguished_from_another_text() {
        let mut file = tempfile::tempfile().unwrap();
        let mut contents = Contents::of(&file);
        assert!(contents.go_on(&file));
        for line in 0..5000 {
            writeln!(file, "{line:08x} 10 a_function").unwrap();
            if line % 500 == 7 {
                assert!(contents.go_on(&file), "{line}");
            }
        }
        assert!(contents.go_on(&file));
        // One line in the middle is longer, and so is the file.
        let mut text = Vec::new();
        for line in 0..5001 {
            let name = if line == 2500 { "another_function" } else { "a_function" };
            writeln!(text, "{line:08x} 10 {name}").unwrap();
        }
        file.write_all_at(&text, 0).unwrap();
        assert!(!contents.go_on(&file));
        assert!(contents.go_on(&file));
        file.set_len(100).unwrap();
        assert!(!contents.go_on(&file));
        file.write_all_at(b"x", 0).unwrap();
        assert!(!contents.go_on(&file));
    }
}
