//! Advice to the kernel on pages of this library.
//!
//! The tables are nearly three megabytes of zeros, of which most processes write a few pages. If
//! transparent huge pages are always used (`/sys/kernel/mm/transparent_hugepage/enabled`), the
//! first written byte would take two megabytes.

use core::arch::asm;

/// `madvise`
const MADVISE: isize = 28;
/// Advice of mman.h.
const MADV_NOHUGEPAGE: usize = 15;
const MADV_WIPEONFORK: usize = 18;
const PAGE: usize = 4096;

/// Makes the kernel map pages one by one, as they are written: those of `bytes` bytes at `address`.
/// A kernel without support leaves everything as it is.
pub(crate) fn one_by_one(address: usize, bytes: usize) {
    advise(address, bytes, MADV_NOHUGEPAGE);
}

/// Makes the kernel clear pages in children of a fork: those of `bytes` bytes at `address`. Returns
/// whether the kernel does so (Linux 4.14).
pub(crate) fn clear_in_children(address: usize, bytes: usize) -> bool {
    advise(address, bytes, MADV_WIPEONFORK)
}

fn advise(address: usize, bytes: usize, advice: usize) -> bool {
    let result: isize;
    let start = address & !(PAGE - 1);
    let length = (address + bytes).next_multiple_of(PAGE) - start;
    // SAFETY: advice, which does not change the contents of these pages of ours. The call does not
    // use libc, which may be missing and would change `errno`.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") MADVISE => result,
            in("rdi") start,
            in("rsi") length,
            in("rdx") advice,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping that holds an address, proc_pid_smaps(5).
    fn flags(address: usize) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_it = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let [start, end] = range.map_or([None; 2], |(start, end)| {
                [start, end].map(|text| usize::from_str_radix(text, 16).ok())
            });
            if let (Some(start), Some(end)) = (start, end) {
                is_it = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
                return flags.to_owned();
            }
        }
        panic!("{address:#x} is not mapped");
    }

    #[test]
    fn madvise_accepts_the_advice() {
        let memory = vec![0u8; 8 << 20];
        let inside = memory.as_ptr() as usize + (2 << 20);
        assert!(!flags(inside).split(' ').any(|flag| flag == "nh"));
        one_by_one(inside, 4 << 20);
        assert!(flags(inside + (1 << 20)).split(' ').any(|flag| flag == "nh"));
        assert!(clear_in_children(inside, 4096));
        assert!(flags(inside).split(' ').any(|flag| flag == "wf"));
    }
}
