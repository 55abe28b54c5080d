//! Code of a file that a program has moved to anonymous memory at the same addresses. node and
//! other programs do so to use large pages.
//!
//! Such memory is at addresses that the file's program headers give to its code. It has the file's
//! bytes, names and call frame information.

use crate::inspect::mappings::{Backing, Mapping};
use crate::unwind::elf::Headers;

/// Gives the file to anonymous executable mappings that are the file's code. Mappings are in the
/// order of addresses. `headers` gives the headers of a mapped file.
pub(super) fn name_moved(
    mappings: &mut [Mapping],
    mut headers: impl FnMut(&Mapping) -> Option<Headers>,
) {
    // The rest of the file may be on either side.
    if mappings.iter().any(is_anonymous_code) {
        name_behind_file(mappings.iter_mut(), &mut headers);
        name_behind_file(mappings.iter_mut().rev(), &mut headers);
    }
}

/// The work of [`name_moved`] in one direction. Each anonymous mapping is compared with the last
/// file before it.
fn name_behind_file<'a>(
    mappings: impl Iterator<Item = &'a mut Mapping>,
    headers: &mut impl FnMut(&Mapping) -> Option<Headers>,
) {
    let mut file: Option<&Mapping> = None;
    let mut known: Option<Option<Headers>> = None;
    for mapping in mappings {
        if is_anonymous_code(mapping) {
            if let Some(file) = file
                && let Some(headers) = known.get_or_insert_with(|| headers(file))
                && let Some(offset) = offset_in(file, headers, mapping)
            {
                mapping.offset = offset;
                (mapping.device, mapping.inode) = (file.device, file.inode);
                mapping.backing = file.backing.clone();
            }
        } else if let Backing::File(_) = mapping.backing {
            file = Some(&*mapping);
            known = None;
        }
    }
}

fn is_anonymous_code(mapping: &Mapping) -> bool {
    mapping.executable && mapping.backing == Backing::Anonymous
}

/// The offset of anonymous code in a file, if the code is at addresses of the file's code.
fn offset_in(file: &Mapping, headers: &Headers, code: &Mapping) -> Option<u64> {
    let stated = match file.executable {
        true => headers.svma(file.offset)?,
        // A page may belong to two segments, but the first page to only one.
        false => headers.first_svma().filter(|_| file.offset == 0)?,
    };
    let slide = stated.wrapping_sub(file.start);
    headers.offset_of_code(code.start.wrapping_add(slide)..code.end.wrapping_add(slide))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x5555_0000_0000;

    fn mapping(range: (u64, u64), offset: u64, executable: bool, path: &str) -> Mapping {
        let backing = match path {
            "" => Backing::Anonymous,
            path => Backing::File(path.to_owned()),
        };
        let inode = path.len() as u64;
        let (start, end) = (BASE + range.0, BASE + range.1);
        Mapping { start, end, offset, executable, device: (8, 1), inode, backing }
    }

    /// A file whose code has the stated addresses 0x201000 to 0x601234, from offset 0x200000 on.
    fn headers(_: &Mapping) -> Option<Headers> {
        let code = (0x20_0000, 0x40_1234, 0x20_1000, true);
        Some(Headers::of_loads(&[(0, 0x1f_0000, 0, false), code]))
    }

    #[track_caller]
    fn becomes(mut mappings: Vec<Mapping>, at: usize, offset: Option<u64>) {
        name_moved(&mut mappings, headers);
        let found = matches!(&mappings[at].backing, Backing::File(path) if path == "/a");
        assert_eq!(found.then_some(mappings[at].offset), offset, "{mappings:x?}");
    }

    #[test]
    fn code_between_mapped_parts_of_a_file_is_the_files() {
        let head = mapping((0x20_1000, 0x30_0000), 0x20_0000, true, "/a");
        let tail = mapping((0x50_0000, 0x60_3000), 0x4f_f000, true, "/a");
        let moved = mapping((0x30_0000, 0x50_0000), 0, true, "");
        becomes(vec![head.clone(), moved.clone(), tail.clone()], 1, Some(0x2f_f000));
        becomes(vec![head, moved.clone()], 1, Some(0x2f_f000));
        becomes(vec![moved, tail], 0, Some(0x2f_f000));
    }

    #[test]
    fn moved_code_without_a_mapped_rest_is_recognized() {
        let first = mapping((0, 0x1f_0000), 0, false, "/a");
        let moved = mapping((0x20_1000, 0x60_3000), 0, true, "");
        becomes(vec![first, moved], 1, Some(0x20_0000));
    }

    #[test]
    fn other_anonymous_code_is_not_assigned_to_a_file() {
        let first = mapping((0, 0x1f_0000), 0, false, "/a");
        let code = mapping((0x20_1000, 0x60_3000), 0x20_0000, true, "/a");
        let data = mapping((0x60_3000, 0x60_4000), 0x60_2000, false, "/a");
        let behind = mapping((0x60_4000, 0x70_0000), 0, true, "");
        becomes(vec![first.clone(), code.clone(), data.clone(), behind.clone()], 3, None);
        becomes(vec![code, behind], 1, None);
        // Code that is only partly at addresses of the file's code.
        let partly = mapping((0x50_0000, 0x60_5000), 0, true, "");
        becomes(vec![first.clone(), partly], 1, None);
        let data = Mapping { executable: false, ..mapping((0x30_0000, 0x50_0000), 0, true, "") };
        becomes(vec![first, data], 1, None);
    }
}
