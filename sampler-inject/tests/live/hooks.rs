//! Hooks in this process: pages at the landings, stubs, and one byte of each function.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use sampler_inject::plan::{Candidate, PAGE_BYTES, Plan};

/// Bytes of a stub with its counter.
const STUB_BYTES: usize = 256;
/// Where the code of a stub begins; its counter lies before it.
const STUB_CODE: usize = 16;
const JUMP: u8 = 0xe9;

/// What was put in, to be taken out again.
pub(crate) struct Hooks {
    memory: File,
    /// Candidate, address of the byte, byte as it was.
    bytes: Vec<(usize, u64, u8)>,
    pages: Vec<u64>,
    stubs: u64,
}

impl Hooks {
    /// Maps what the plan needs and writes its bytes.
    pub(crate) fn put_in(plan: &Plan, candidates: &[Candidate]) -> Hooks {
        let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let stubs = map(
            0,
            candidates.len() * STUB_BYTES,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        );
        let stub = |candidate: usize| stubs + (candidate * STUB_BYTES + STUB_CODE) as u64;
        for page in plan.contents(stub).unwrap() {
            let readable = libc::PROT_READ | libc::PROT_EXEC;
            assert_eq!(map(page.address, PAGE_BYTES as usize, readable), page.address);
            memory.write_all_at(&page.bytes, page.address).unwrap();
        }
        for hook in &plan.hooks {
            let arguments = candidates[hook.candidate].function.arguments;
            let code = code(hook.original, arguments);
            memory.write_all_at(&code, stub(hook.candidate)).unwrap();
        }
        let bytes: Vec<_> = plan
            .hooks
            .iter()
            .map(|hook| (hook.candidate, hook.place.patch, hook.place.original))
            .collect();
        for (_, address, _) in &bytes {
            memory.write_all_at(&[JUMP], *address).unwrap();
        }
        Hooks { memory, bytes, pages: plan.pages.clone(), stubs }
    }

    /// Takes everything out; returns how often each candidate was called, or `None` for one that is
    /// not hooked any more.
    pub(crate) fn take_out(self) -> HashMap<usize, Option<u64>> {
        let mut is_hooked = HashMap::new();
        for (candidate, address, byte) in &self.bytes {
            let mut now = [0];
            self.memory.read_exact_at(&mut now, *address).unwrap();
            is_hooked.insert(*candidate, now == [JUMP]);
            if now == [JUMP] {
                self.memory.write_all_at(&[*byte], *address).unwrap();
            }
        }
        let count = |candidate: usize| {
            let counter = (self.stubs + (candidate * STUB_BYTES) as u64) as *const AtomicU64;
            // SAFETY: the stubs stay mapped, and the counter is aligned.
            unsafe { &*counter }.load(Ordering::Relaxed)
        };
        let count = |(candidate, is_hooked): (usize, bool)| {
            (candidate, is_hooked.then(|| count(candidate)))
        };
        let counts = is_hooked.into_iter().map(count).collect();
        for page in &self.pages {
            // SAFETY: all other threads have ended, and this one is not in there.
            unsafe { libc::munmap(*page as *mut libc::c_void, PAGE_BYTES as usize) };
        }
        counts
    }
}

/// Maps memory; 0 is anywhere.
fn map(address: u64, length: usize, protection: i32) -> u64 {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: replaces nothing.
    let mapped = unsafe { libc::mmap(address as *mut _, length, protection, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped as u64
}

/// Counts, spoils registers, goes on at `original`.
fn code(original: u64, arguments: u8) -> Vec<u8> {
    // lock inc qword [rip - 16 - 8]
    let mut code = vec![0xf0, 0x48, 0xff, 0x05];
    code.extend((-(STUB_CODE as i32) - 8).to_le_bytes());
    // rax, r10, r11, rcx, r8, r9, and arguments that the function does not have.
    let mut spoiled = vec![0xb848, 0xba49, 0xbb49, 0xb948, 0xb849, 0xb949_u16];
    spoiled.extend((arguments < 3).then_some(0xba48));
    spoiled.extend((arguments < 2).then_some(0xbe48));
    for register in spoiled {
        code.extend(register.to_le_bytes());
        code.extend(0xdead_beef_dead_beef_u64.to_le_bytes());
    }
    // jmp [rip]
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(original.to_le_bytes());
    assert!(code.len() <= STUB_BYTES - STUB_CODE);
    code
}
