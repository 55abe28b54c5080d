//! Reads the notes of an ELF file. Reference: elf(5), "Notes (Nhdr)".

use object::LittleEndian as LE;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::NoteIterator;
use sampler_common::units::hex;

/// `NT_GO_BUILD_ID`, which Go's linker writes under the name "Go".
const NT_GO_BUILD_ID: u32 = 4;

/// The GNU build id among these notes, lower-case hex, empty if there is none.
pub(crate) fn build_id(notes: &[u8], align: u64) -> String {
    hex(find(notes, align, b"GNU", NT_GNU_BUILD_ID).unwrap_or_default())
}

/// Whether these notes are of a Go program.
pub(in crate::inspect) fn is_go(notes: &[u8], align: u64) -> bool {
    find(notes, align, b"Go", NT_GO_BUILD_ID).is_some()
}

/// The description of the first note with this name and type.
fn find<'a>(notes: &'a [u8], align: u64, wanted: &[u8], wanted_kind: u32) -> Option<&'a [u8]> {
    each(notes, align)
        .find(|(name, kind, _)| (*name, *kind) == (wanted, wanted_kind))
        .map(|(_, _, description)| description)
}

/// Name, type and description of each note, up to the first malformed one. Notes are padded to 8
/// bytes if the segment is, and to 4 otherwise.
pub(in crate::inspect) fn each(
    notes: &[u8],
    align: u64,
) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    let align = if align == 8 { 8 } else { 4 };
    let mut notes = NoteIterator::<FileHeader64<LE>>::new(LE, align, notes).ok();
    std::iter::from_fn(move || {
        let note = notes.as_mut()?.next().ok()??;
        Some((note.name(), note.n_type(LE), note.desc()))
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
