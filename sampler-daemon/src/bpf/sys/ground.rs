//! Functions of the daemon's own to probe, and a stack to call them on.
//!
//! The functions are a few bytes of machine code in a memory file that no other process has. So a
//! probe in the file costs no other process anything, and the links of another daemon are not on
//! the file.
//! Every function takes three arguments and returns the third.

use super::first_stack::FirstStack;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use sampler_common::limits::ABOVE_FIRST_STACK;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;

const PAGE: usize = 4096;
/// Bytes below the stack pointer: for the functions, and for signal handlers.
const BELOW: usize = 64 * 1024;
/// Maximum bytes of stack above the stack pointer.
pub(in crate::bpf) const ABOVE: usize = 64 * 1024;

/// `push rbp; mov rax, rdx; pop rbp; ret`: the kernel emulates the first instruction.
const EMULATED: &[u8] = &[0x55, 0x48, 0x89, 0xd0, 0x5d, 0xc3];
/// `mov rax, rdx; push rbp; pop rbp; ret`: the kernel single-steps the first instruction.
const STEPPED: &[u8] = &[0x48, 0x89, 0xd0, 0x55, 0x5d, 0xc3];
/// `call_on(stack, function, first, second, third)`: calls a function with the stack pointer at
/// `stack`.
const CALL_ON: &[u8] = &[
    0x55, // push rbp
    0x48, 0x89, 0xe5, // mov rbp, rsp
    0x48, 0x89, 0xfc, // mov rsp, rdi
    0x48, 0x89, 0xf0, // mov rax, rsi
    0x48, 0x89, 0xd7, // mov rdi, rdx
    0x48, 0x89, 0xce, // mov rsi, rcx
    0x4c, 0x89, 0xc2, // mov rdx, r8
    0xff, 0xd0, // call rax
    0x48, 0x89, 0xec, // mov rsp, rbp
    0x5d, // pop rbp
    0xc3, // ret
];
/// Bytes from one function to the next.
const STRIDE: usize = 64;
/// Filler between functions: breakpoints.
const FILL: u8 = 0xcc;

/// A function by its number. The first instruction of even functions is emulated, and that of odd
/// ones single-stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bpf) struct Function(pub(in crate::bpf) usize);

impl Function {
    /// Number of functions.
    pub(in crate::bpf) const COUNT: usize = 8;

    /// File offset of the function's first instruction, which is the one to probe.
    pub(in crate::bpf) fn offset(self) -> usize {
        (1 + self.0) * STRIDE
    }
}

/// The functions with their file, and the stack.
pub(in crate::bpf) struct Ground {
    file: File,
    code: Region,
    stack: Region,
}

impl Ground {
    /// Makes the file, maps it, and maps the stack.
    pub(in crate::bpf) fn new() -> io::Result<Ground> {
        let name = c"sampler-calibration";
        let flags = MemfdFlags::CLOEXEC;
        let made = match memfd_create(name, flags | MemfdFlags::EXEC) {
            // Linux before 6.3 does not know the flag, and makes every such file executable.
            Err(Errno::INVAL) => memfd_create(name, flags),
            made => made,
        };
        let mut file = File::from(made?);
        file.write_all(&page())?;
        let code = Region::map(Some(&file), PAGE, libc::PROT_READ | libc::PROT_EXEC)?;
        let bytes = BELOW + ABOVE;
        let mut stack = Region::map(None, bytes + PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
        stack.end_at(bytes)?;
        Ok(Ground { file, code, stack })
    }

    /// The file with the functions.
    pub(in crate::bpf) fn file(&self) -> &File {
        &self.file
    }

    /// Makes the kernel take this stack for the one of the process's first thread, until the result
    /// is dropped.
    pub(in crate::bpf) fn as_first_stack(&self) -> Option<FirstStack> {
        let begin = BELOW + ABOVE - ABOVE_FIRST_STACK as usize;
        FirstStack::beginning_at(self.stack.base.map_addr(|base| base.saturating_add(begin)))
    }

    /// Calls a function with `stack_bytes` of stack (at most [`ABOVE`]) above the call. Returns the
    /// function's result.
    pub(in crate::bpf) fn call(
        &self,
        of: Function,
        stack_bytes: usize,
        arguments: [u64; 3],
    ) -> u64 {
        let above = stack_bytes.min(ABOVE) & !15;
        let stack = self.stack.address() + BELOW + ABOVE - above;
        let [first, second, third] = arguments;
        type CallOn = unsafe extern "C" fn(usize, usize, u64, u64, u64) -> u64;
        let code = self.code.base.as_ptr();
        // SAFETY: the mapping begins with `CALL_ON`, which is a function of this type. The mapping
        // is executable as long as `self` lives.
        let call_on = unsafe { std::mem::transmute::<*mut u8, CallOn>(code) };
        // SAFETY: the stack pointer is aligned to 16 bytes, with at least `BELOW` writable bytes
        // under it. The function is one of ours, which changes only rax, rdx and its own stack
        // slot.
        unsafe { call_on(stack, self.code.address() + of.offset(), first, second, third) }
    }
}

/// The file's contents.
fn page() -> [u8; PAGE] {
    let mut page = [FILL; PAGE];
    page[..CALL_ON.len()].copy_from_slice(CALL_ON);
    for number in 0..Function::COUNT {
        let bytes = if number % 2 == 0 { EMULATED } else { STEPPED };
        let offset = Function(number).offset();
        page[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    page
}

/// A private mapping.
struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

impl Region {
    /// Maps a file, or anonymous memory whose pages are allocated at once: the kernel side does not
    /// wait for pages.
    fn map(file: Option<&File>, bytes: usize, protection: libc::c_int) -> io::Result<Region> {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_PRIVATE, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1),
        };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Region { base, bytes })
    }

    fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Makes the bytes from `end` on unreadable; `end` is a multiple of the page size.
    fn end_at(&mut self, end: usize) -> io::Result<()> {
        assert!(end.is_multiple_of(PAGE) && end <= self.bytes, "end {end} outside the mapping");
        // SAFETY: in bounds by the assertion.
        let from = unsafe { self.base.as_ptr().add(end) };
        // SAFETY: a part of our own mapping, into which no reference exists.
        match unsafe { libc::mprotect(from.cast(), self.bytes - end, libc::PROT_NONE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: the code is never written to, and only calls use the stack. One thread owns the region at
// a time.
unsafe impl Send for Region {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_return_on_any_stack() {
        let ground = Ground::new().unwrap();
        for number in 0..Function::COUNT {
            for above in [0, 100, 5000, ABOVE, usize::MAX] {
                let returned = ground.call(Function(number), above, [1, 2, 3]);
                assert_eq!(returned, 3, "{number}");
            }
        }
    }
}
