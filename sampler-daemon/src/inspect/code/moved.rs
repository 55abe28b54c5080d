//! Files whose code a process has moved to anonymous memory (see [`super::moving`]). No probe of
//! such a file acts on the moved code.

use crate::inspect::mappings::{Backing, Mapping};

/// One mapping for each file with moved code, from a process's list of mappings. Moved code is
/// executable anonymous memory that begins where a mapping of the file ends. Behind that memory,
/// another mapping continues the file.
pub(in crate::inspect) fn files(mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    let is_code = |of: &Mapping| of.executable && of.backing == Backing::Anonymous;
    mappings.iter().enumerate().filter_map(move |(at, before)| {
        let Backing::File(_) = before.backing else { return None };
        let rest = mappings.get(at + 1..)?;
        // Huge pages may be a mapping of their own.
        let moved = rest.iter().scan(before.end, |end, of| {
            let is_next = of.start == *end && is_code(of);
            *end = of.end;
            is_next.then_some(of)
        });
        let count = moved.count();
        let (last, behind) = (rest.get(count.checked_sub(1)?)?, rest.get(count)?);
        let continues = behind.start == last.end
            && behind.offset.wrapping_sub(before.offset) == behind.start - before.start
            && (behind.device, behind.inode) == (before.device, before.inode);
        continues.then_some(before)
    })
}

/// Whether the byte at `offset` of the file that `of` maps is mapped as code.
pub(in crate::inspect) fn is_code(mappings: &[Mapping], of: &Mapping, offset: u64) -> bool {
    mappings.iter().any(|mapping| {
        mapping.executable
            && (mapping.device, mapping.inode) == (of.device, of.inode)
            && (mapping.offset..mapping.offset + (mapping.end - mapping.start)).contains(&offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of these pages, whose first page is page `file` of the file. Inode 0: anonymous.
    fn mapping(pages: std::ops::Range<u64>, file: u64, inode: u64, executable: bool) -> Mapping {
        const PAGE: u64 = 4096;
        let backing = match inode {
            0 => Backing::Anonymous,
            _ => Backing::File("/bin/program".to_owned()),
        };
        Mapping {
            start: pages.start * PAGE,
            end: pages.end * PAGE,
            offset: file * PAGE,
            executable,
            device: (8, 1),
            inode,
            backing,
        }
    }

    fn count(mappings: &[Mapping]) -> usize {
        files(mappings).count()
    }

    #[test]
    fn code_between_two_parts_of_a_file_was_moved() {
        let head = mapping(10..11, 0, 7, false);
        let moved = mapping(11..20, 0, 0, true);
        let tail = mapping(20..22, 10, 7, false);
        let all = [head.clone(), moved.clone(), tail.clone()];
        assert_eq!(count(&all), 1);
        assert!(!is_code(&all, &head, 5 * 4096));
        let parts = [mapping(11..15, 0, 0, true), mapping(15..20, 0, 0, true)];
        assert_eq!(count(&[&all[..1], &parts, &all[2..]].concat()), 1);
        // No moved code: a compiler's code behind a program; data; another file; another part of
        // the file.
        assert_eq!(count(&[head.clone(), moved.clone()]), 0);
        assert_eq!(count(&[head.clone(), mapping(11..20, 0, 0, false), tail.clone()]), 0);
        assert_eq!(count(&[head.clone(), moved.clone(), mapping(20..22, 10, 8, false)]), 0);
        assert_eq!(count(&[head, moved, mapping(20..22, 11, 7, false)]), 0);
    }

    #[test]
    fn the_mapped_rest_of_a_file_is_still_its_code() {
        let all = [
            mapping(10..12, 0, 7, true),
            mapping(12..20, 0, 0, true),
            mapping(20..22, 10, 7, true),
        ];
        let before = files(&all).next().unwrap();
        let is_mapped = |page: u64| is_code(&all, before, page * 4096);
        assert!(is_mapped(1) && is_mapped(11) && !is_mapped(2) && !is_mapped(9));
    }
}
