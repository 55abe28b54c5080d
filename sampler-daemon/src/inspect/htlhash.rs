//! `htlhash`: OpenTelemetry's profiles identify a file by this hash, whether the file has a build
//! id or not.
//!
//! Reference: "Algorithm for `process.executable.build_id.htlhash`" of the semantic conventions of
//! profiles. The hash is the first 16 bytes of SHA-256 over the first and the last 4,096 bytes of
//! the file and its length.

use sampler_common::units::hex;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const PART_BYTES: u64 = 4096;
const HASH_BYTES: usize = 16;

/// The hash of a file, in lower-case hex.
///
/// # Errors
/// If the file cannot be read.
pub fn htlhash(file: &File) -> io::Result<String> {
    let length = file.metadata()?.len();
    let part = length.min(PART_BYTES);
    let mut hash = Sha256::new();
    let mut bytes = vec![0; part as usize];
    for offset in [0, length - part] {
        file.read_exact_at(&mut bytes, offset)?;
        hash.update(&bytes);
    }
    hash.update(length.to_be_bytes());
    Ok(hex(&hash.finalize()[..HASH_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Compares with `sha256sum`. The two parts overlap in a short file, and do not in a long one.
    #[test]
    fn htlhash_is_that_of_the_semantic_conventions() {
        for length in [10_usize, 5000, 20_000] {
            let contents: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let part = length.min(4096);
            let size = (length as u64).to_be_bytes();
            let hashed = [&contents[..part], &contents[length - part..], &size[..]].concat();
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("hashed");
            std::fs::write(&path, hashed).unwrap();
            let sum = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&contents).unwrap();
            let expected = String::from_utf8(sum.stdout).unwrap()[..32].to_owned();
            assert_eq!(htlhash(&file).unwrap(), expected, "{length} bytes");
        }
    }
}
