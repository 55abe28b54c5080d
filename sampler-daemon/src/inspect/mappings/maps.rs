//! Lines of `/proc/PID/maps` (proc(5)), as the kernel writes them: `start-end perms offset major:minor inode   path`.

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::inspect) struct Line<'a> {
    /// First address.
    pub(in crate::inspect) start: u64,
    /// First address behind the mapping.
    pub(in crate::inspect) end: u64,
    /// `rwxp`, with `-` for each permission that is missing and `s` for a shared mapping.
    pub(super) permissions: &'a str,
    /// Offset of `start` in the file.
    pub(in crate::inspect) offset: u64,
    /// Major and minor number of the device.
    pub(in crate::inspect) device: (i32, i32),
    /// Inode, 0 without a file.
    pub(in crate::inspect) inode: u64,
    /// Path, or name of a mapping without a file. It may contain any byte but a newline.
    pub(in crate::inspect) path: &'a [u8],
}

impl Line<'_> {
    /// Whether the mapping is writable and private.
    pub(in crate::inspect) fn is_own(&self) -> bool {
        self.permissions.starts_with("rw") && self.permissions.ends_with('p')
    }
}

/// All lines of a text. Lines that do not parse are left out.
pub(in crate::inspect) fn lines(maps: &[u8]) -> impl Iterator<Item = Line<'_>> {
    maps.split(|byte| *byte == b'\n').filter_map(parse)
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (field, behind) = rest.split_at(end);
        rest = behind.get(1..).unwrap_or_default();
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?;
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    Some(Line {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        permissions,
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: (i32::from_str_radix(major, 16).ok()?, i32::from_str_radix(minor, 16).ok()?),
        inode,
        // The kernel pads the path on its left.
        path: rest.trim_ascii_start(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_parsed() {
        let maps = b"\
7f00-7f01 rw-p 00002000 fe:01 1234                       /usr/bin/a b
8000-9000 rw-s 00000000 00:00 0 \n\
nonsense
";
        let lines: Vec<Line> = lines(maps).collect();
        let first = Line {
            start: 0x7f00,
            end: 0x7f01,
            permissions: "rw-p",
            offset: 0x2000,
            device: (0xfe, 1),
            inode: 1234,
            path: b"/usr/bin/a b",
        };
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], first);
        assert!(lines[0].is_own() && !lines[1].is_own());
        assert_eq!(lines[1].path, b"");
    }
}
