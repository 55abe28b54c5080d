//! Whether a process has the same files mapped as at its last inspection. Then another inspection
//! would find nothing new.

use super::{Backing, Mapping};

/// Inspections that must have found the same files. The loader maps a file a moment before the file
/// is in its list and its `malloc` is in force.
const MIN_EQUAL_INSPECTIONS: u32 = 2;

/// The files with code that a process had mapped at its last inspection. Everything in them that
/// can be probed is probed.
#[derive(Debug, Default)]
pub struct MappingsFingerprint {
    files: Vec<Mapping>,
    times: u32,
}

impl MappingsFingerprint {
    /// Whether an inspection of a process with these files would find nothing new.
    pub fn is_known(&self, files: &[Mapping]) -> bool {
        self.times >= MIN_EQUAL_INSPECTIONS && self.files == files
    }

    /// Records an inspection with these files that left nothing to be tried again.
    pub fn note(&mut self, files: Vec<Mapping>) {
        self.times = if self.files == files { self.times + 1 } else { 1 };
        self.files = files;
    }

    /// Makes the next inspection search everything.
    pub fn forget(&mut self) {
        *self = MappingsFingerprint::default();
    }
}

/// The mappings of a process that can hold an allocator.
pub fn files(mappings: &[Mapping]) -> Vec<Mapping> {
    let may = |of: &&Mapping| of.executable && matches!(of.backing, Backing::File(_));
    mappings.iter().filter(may).map(Mapping::without_path).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, Mapping};
    use super::{MappingsFingerprint, files};

    fn mapping(start: u64, backing: Backing) -> Mapping {
        let device = (8, 1);
        Mapping {
            start,
            end: start + 0x1000,
            offset: 0,
            executable: true,
            device,
            inode: 7,
            backing,
        }
    }

    #[test]
    fn files_are_unchanged_after_two_equal_inspections() {
        let libc = || vec![mapping(0x1000, Backing::File("/usr/lib/libc.so.6".to_owned()))];
        let mut fingerprint = MappingsFingerprint::default();
        assert!(!fingerprint.is_known(&[]));
        fingerprint.note(libc());
        assert!(!fingerprint.is_known(&libc()));
        fingerprint.note(libc());
        assert!(fingerprint.is_known(&libc()));
        // A mapping elsewhere is another image.
        let moved = vec![mapping(0x8000, Backing::File("/usr/lib/libc.so.6".to_owned()))];
        assert!(!fingerprint.is_known(&moved));
        fingerprint.note(moved.clone());
        assert!(!fingerprint.is_known(&moved) && !fingerprint.is_known(&libc()));
        fingerprint.note(moved.clone());
        fingerprint.forget();
        assert!(!fingerprint.is_known(&moved));
    }

    #[test]
    fn anonymous_code_causes_no_inspection() {
        let program = mapping(0x1000, Backing::File("/usr/bin/node".to_owned()));
        let jit = mapping(0x4000, Backing::Anonymous);
        assert_eq!(files(&[program.clone(), jit]), [program.without_path()]);
    }
}
