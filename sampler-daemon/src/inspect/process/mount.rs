//! Why even root may not open a file of a process: the mount of the file forbids it (proc(5):
//! `/proc/PID/mountinfo`).

use std::fs;

/// Why the mount of this device refuses root, and the remedy.
pub(in crate::inspect) fn refusal(pid: u32, device: (i32, i32)) -> Option<String> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let Mount { point, kind } = mounts
        .lines()
        .filter_map(Mount::parse)
        .find_map(|(of, mount)| (of == device).then_some(mount))?;
    let [why, remedy] = match kind {
        // `fuse_allow_current_process` in `fs/fuse/dir.c`: the user's daemon could block or mislead
        // a process that reads from the mount.
        _ if kind.starts_with("fuse") => [
            "FUSE lets only the user read there who mounted it, not root",
            "mount it with -o allow_other",
        ],
        _ if kind.starts_with("nfs") => [
            "the server takes root for nobody there",
            "let others read it, or export it with no_root_squash",
        ],
        _ => return None,
    };
    Some(format!("it is on the {kind} mount {point}: {why} ({remedy})"))
}

/// A mount as the process sees it.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    /// Mount point, as the kernel escapes it.
    point: &'a str,
    /// Type of the file system.
    kind: &'a str,
}

impl Mount<'_> {
    /// `id parent major:minor root point options [optional fields] - type source options`.
    fn parse(line: &str) -> Option<((i32, i32), Mount<'_>)> {
        let (fields, behind) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let point = fields.nth(1)?;
        let kind = behind.split(' ').next()?;
        Some(((major.parse().ok()?, minor.parse().ok()?), Mount { point, kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed() {
        let line = "42 27 0:39 / /home/a\\040b rw,nosuid shared:1 - fuse.sshfs h: rw,user_id=1000";
        let mount = Mount { point: "/home/a\\040b", kind: "fuse.sshfs" };
        assert_eq!(Mount::parse(line), Some(((0, 39), mount)));
        assert_eq!(Mount::parse("42 27 0:39 / /home"), None);
        assert_eq!(Mount::parse("42 27 0:x / /home rw - ext4 d rw"), None);
        assert_eq!(refusal(std::process::id(), (4095, 1)), None);
    }
}
