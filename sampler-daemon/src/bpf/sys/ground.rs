//! Functions of the daemon's own to probe, and a stack to call them on.
//!
//! They are a few bytes of machine code in a file of memory that nobody else has: a probe in it costs no other process anything, and
//! the links of another daemon are not on it. Every function takes three arguments and returns the third, but for two that return the time.

use super::first_stack::FirstStack;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use sampler_common::limits::ABOVE_FIRST_STACK;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;

const PAGE: usize = 4096;
/// Room below the stack pointer: for the functions, and for signal handlers.
const BELOW: usize = 64 * 1024;
/// The most of a stack that can be above it.
pub(in crate::bpf) const ABOVE: usize = 64 * 1024;

/// `push rbp; mov rax, rdx; pop rbp; ret`: the kernel emulates the first instruction.
const EMULATED: &[u8] = &[0x55, 0x48, 0x89, 0xd0, 0x5d, 0xc3];
/// `mov rax, rdx; push rbp; pop rbp; ret`: it single-steps this one.
const STEPPED: &[u8] = &[0x48, 0x89, 0xd0, 0x55, 0x5d, 0xc3];
/// `nop; mov rax, rdx; ret`: what USDTs are; the kernel emulates it.
const NOP: &[u8] = &[0x90, 0x48, 0x89, 0xd0, 0xc3];
/// `call_on(stack, function, first, second, third)`: calls a function with the stack pointer at `stack`.
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
/// What is between functions: a breakpoint each.
const FILL: u8 = 0xcc;

/// Functions from this number on begin with a nop.
const FIRST_NOP: usize = Function::COUNT / 2;

/// A function by its number: even ones are emulated, odd ones are not, and the last half begin with a nop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bpf) struct Function(pub(in crate::bpf) usize);

impl Function {
    /// Functions that there are.
    pub(in crate::bpf) const COUNT: usize = PAGE / STRIDE - 1;

    /// The `number`-th that begins with a nop.
    pub(in crate::bpf) fn nop(number: usize) -> Function {
        Function(FIRST_NOP + number)
    }

    /// Offset of its first instruction, the one to probe, in the file.
    pub(in crate::bpf) fn offset(self) -> usize {
        (1 + self.0 % Function::COUNT) * STRIDE
    }
}

/// The functions and the stack.
pub(in crate::bpf) struct Ground {
    file: File,
    code: Region,
    stack: Region,
}

impl Ground {
    /// Makes them.
    pub(in crate::bpf) fn new() -> io::Result<Ground> {
        let name = c"sampler-calibration";
        let flags = MemfdFlags::CLOEXEC;
        let made = match memfd_create(name, flags | MemfdFlags::EXEC) {
            // Linux before 6.3 has no such flag, and makes every such file executable.
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

    /// The file that the functions are in.
    pub(in crate::bpf) fn file(&self) -> &File {
        &self.file
    }

    /// Its stack is the one of this process's first thread, as far as the kernel knows, until what is returned is dropped.
    pub(in crate::bpf) fn as_first_stack(&self) -> Option<FirstStack> {
        let begin = BELOW + ABOVE - ABOVE_FIRST_STACK as usize;
        FirstStack::beginning_at(self.stack.base.map_addr(|base| base.saturating_add(begin)))
    }

    /// What a function returns that is called where `stack_bytes` of stack (at most [`ABOVE`]) are above the call.
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
        // SAFETY: the mapping begins with `CALL_ON`, which is a function of this type, and is executable as long as `self` lives.
        let call_on = unsafe { std::mem::transmute::<*mut u8, CallOn>(code) };
        // SAFETY: the stack pointer is aligned to 16 bytes, with at least `BELOW` writable bytes under it; the function is one of ours,
        // which touches nothing but rax, rdx and its own stack slot.
        unsafe { call_on(stack, self.code.address() + of.offset(), first, second, third) }
    }
}

/// The file's contents.
fn page() -> [u8; PAGE] {
    let mut page = [FILL; PAGE];
    page[..CALL_ON.len()].copy_from_slice(CALL_ON);
    for number in 0..Function::COUNT {
        let bytes = match number % 2 {
            _ if number >= FIRST_NOP => NOP,
            0 => EMULATED,
            _ => STEPPED,
        };
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
    /// Of a file, or of memory that is there at once: the kernel side does not wait for pages.
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

    /// Nothing can be read from byte `end` on, a multiple of the page size.
    fn end_at(&mut self, end: usize) -> io::Result<()> {
        assert!(end.is_multiple_of(PAGE) && end <= self.bytes, "end {end} outside the mapping");
        // SAFETY: in bounds by the assertion.
        let from = unsafe { self.base.as_ptr().add(end) };
        // SAFETY: a part of our own mapping, into which there is no reference.
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

// SAFETY: the code is never written to and the stack is only used by calls; one thread has it at a time.
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
