//! Whether two files are the same file to the kernel.
//!
//! Containers see the files of a shared layer through overlay mounts of their own: with other
//! devices, inodes and paths. Yet their processes map the pages of the one file below, and a probe
//! on that file hits in all of them. Two probes would count every call twice.

use super::sys::SharedMemory;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const PAGE: usize = 4096;
/// `/proc/PID/pagemap`: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// `/proc/PID/pagemap`: bits of the frame number.
const FRAME: u64 = (1 << 55) - 1;

/// Whether `a` and `b` have the same pages in the kernel's cache.
///
/// # Errors
/// If a file cannot be mapped, or the kernel hides where its pages are.
pub fn are_shared(a: &File, b: &File) -> io::Result<bool> {
    // Both are mapped at the same time. Otherwise the first page could be evicted and its frame
    // reused for the second.
    let a = SharedMemory::map(a.as_fd(), PAGE, 0, false)?;
    let b = SharedMemory::map(b.as_fd(), PAGE, 0, false)?;
    Ok(frame(&a)? == frame(&b)?)
}

/// The frame of a mapped page.
fn frame(page: &SharedMemory) -> io::Result<u64> {
    // The read brings the page into memory.
    std::hint::black_box(page.atomic_u32(0).load(Relaxed));
    let mut entry = [0; 8];
    let at = page.address() / PAGE as u64 * 8;
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, at)?;
    let entry = u64::from_ne_bytes(entry);
    match entry & FRAME {
        // The kernel hides frame numbers from processes that are not root.
        0 => Err(io::Error::other("the kernel hides where pages are")),
        _ if entry & PRESENT == 0 => Err(io::Error::other("the page has left memory")),
        frame => Ok(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_of_one_file_share_its_pages() {
        if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) != 0 {
            let own = File::open("/proc/self/exe").unwrap();
            assert!(are_shared(&own, &own).is_err(), "only root can compare files");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a"), vec![7; 5000]).unwrap();
        std::fs::copy(path("a"), path("b")).unwrap();
        std::fs::hard_link(path("a"), path("c")).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| File::open(path(name)).unwrap());
        assert!(are_shared(&a, &c).unwrap());
        assert!(!are_shared(&a, &b).unwrap());
    }
}
