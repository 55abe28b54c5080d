//! Notes of USDT probes: the descriptions in `.note.stapsdt`.
//!
//! Reference: "User Space Probe Implementation" of SystemTap. A note has three addresses: the
//! probe, `.stapsdt.base` at link time, and the semaphore (0 without one). Provider, name and
//! arguments follow, each with a zero behind it.

use crate::inspect::elf::notes::each;

/// Type of these notes, under the name "stapsdt".
const NT_STAPSDT: u32 = 3;

/// One note. The texts are the file's, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note<'a> {
    /// Address of the probe in the file's own address space.
    pub(super) address: u64,
    /// Address of `.stapsdt.base` when the file was linked.
    pub(super) base: u64,
    /// Address of the semaphore, 0 without one.
    pub(super) semaphore: u64,
    pub(super) provider: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) arguments: &'a [u8],
}

/// The USDT notes in a section. Other notes and malformed ones are skipped.
pub(super) fn probes(section: &[u8]) -> impl Iterator<Item = Note<'_>> {
    each(section, 4)
        .filter(|(name, kind, _)| *name == b"stapsdt" && *kind == NT_STAPSDT)
        .filter_map(|(_, _, description)| parse(description))
}

fn parse(description: &[u8]) -> Option<Note<'_>> {
    let (words, texts) = description.split_first_chunk::<24>()?;
    let word = |at: usize| -> u64 {
        words[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    let mut texts = texts.split(|&byte| byte == 0);
    let (provider, name, arguments) = (texts.next()?, texts.next()?, texts.next()?);
    // The last text must have a zero behind it too.
    texts.next()?;
    Some(Note { address: word(0), base: word(8), semaphore: word(16), provider, name, arguments })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A note as the assembler writes it.
    pub(crate) fn note(words: [u64; 3], texts: &str) -> Vec<u8> {
        let mut description: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        description.extend(texts.replace('|', "\0").bytes());
        let mut note = Vec::new();
        for word in [8, description.len() as u32, NT_STAPSDT] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"stapsdt\0");
        note.extend(description);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn notes_are_found() {
        let mut section = note([1, 2, 3], "libc|setjmp|8@%rdi|");
        section.extend(note([4, 5, 0], "otel_memory|free||"));
        section.extend(note([4, 5, 0], "otel_memory|unfinished|"));
        let found: Vec<_> = probes(&section).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].address, found[0].base, found[0].semaphore), (1, 2, 3));
        assert_eq!((found[0].name, found[0].arguments), (&b"setjmp"[..], &b"8@%rdi"[..]));
        assert_eq!((found[1].provider, found[1].arguments), (&b"otel_memory"[..], &b""[..]));
        for length in 0..section.len() {
            assert!(probes(&section[..length]).count() <= 2);
        }
    }

    proptest! {
        #[test]
        fn damaged_notes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..60, byte: u8) {
            let _ = probes(&bytes).count();
            let mut section = note([1, 2, 3], "otel_memory|alloc|8@%rdi|");
            section[at] = byte;
            let _ = probes(&section).count();
        }
    }
}
