//! Reads the notes of an ELF file. Reference: elf(5), "Notes (Nhdr)".

use object::elf::NT_GNU_BUILD_ID;
use sampler_common::units::hex;

/// `NT_GO_BUILD_ID`, which Go's linker writes under the name "Go".
const NT_GO_BUILD_ID: u32 = 4;

/// The GNU build id among these notes, lower-case hex, empty if there is none.
pub(super) fn build_id(notes: &[u8], align: u64) -> String {
    hex(find(notes, align, b"GNU\0", NT_GNU_BUILD_ID).unwrap_or_default())
}

/// Whether these notes are of a Go program.
pub(super) fn is_go(notes: &[u8], align: u64) -> bool {
    find(notes, align, b"Go\0\0", NT_GO_BUILD_ID).is_some()
}

/// The description of the first note with this name and type.
fn find<'a>(notes: &'a [u8], align: u64, wanted: &[u8], wanted_kind: u32) -> Option<&'a [u8]> {
    each(notes, align)
        .find(|(name, kind, _)| *kind == wanted_kind && name.starts_with(wanted))
        .map(|(_, _, description)| description)
}

/// Name, type and description of each note. A note is: name size, description size, type, name,
/// description; the last two are padded to the segment's alignment. The iterator ends at the first
/// malformed note.
pub(super) fn each(notes: &[u8], align: u64) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    let align = if align == 8 { 8 } else { 4 };
    let padded = move |size: u32| (size as usize).checked_next_multiple_of(align);
    let mut notes = notes;
    std::iter::from_fn(move || {
        let (header, behind) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| {
            header[at..at + 4].iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte))
        };
        let (name_bytes, description_bytes, kind) = (word(0), word(4), word(8));
        // Padding counts from the start of the note, whose header is 12 bytes long.
        let name_end = padded(name_bytes.saturating_add(12)).map(|end| end - 12);
        let (name, behind) = name_end.and_then(|end| behind.split_at_checked(end))?;
        let description = behind.get(..description_bytes as usize)?;
        notes = padded(description_bytes).and_then(|end| behind.get(end..)).unwrap_or_default();
        Some((name, kind, description))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_found_behind_other_notes() {
        let note = |name: &[u8], kind: u32, id: &[u8], align: usize| {
            let mut note = Vec::new();
            for word in [name.len() as u32, id.len() as u32, kind] {
                note.extend(word.to_le_bytes());
            }
            for part in [name, id] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(align), 0);
            }
            note
        };
        for align in [4, 8] {
            let mut notes = note(b"GNU\0", 1, &[0; 16], align);
            notes.extend(note(b"stapsdt\0", 3, &[1; 13], align));
            notes.extend(note(b"GNU\0", NT_GNU_BUILD_ID, &[0xab, 0x0c, 0xff], align));
            assert_eq!(build_id(&notes, align as u64), "ab0cff");
            for length in 0..notes.len() - align {
                assert_eq!(build_id(&notes[..length], align as u64), "");
            }
        }
        assert_eq!(build_id(&[0xff; 64], 4), "");
        let go = note(b"Go\0\0", NT_GO_BUILD_ID, b"id", 4);
        assert!(is_go(&go, 4) && !is_go(&go[4..], 4));
    }
}
