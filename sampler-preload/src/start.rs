//! What the kernel left on the initial stack: the environment as it was, and random bytes.
//!
//! `argc, argv…, 0, envp…, 0, (key, value)…, (0, 0)` (System V ABI, AMD64 supplement, 3.4.1), from `__libc_stack_end`. It is there
//! before anybody may call us, and asking for it needs nobody. Where that symbol is missing (musl), the environment is the
//! program's own, and the processor's time has to do for random bytes.

use crate::next::weak;

/// Words on the stack that are looked at, at most: more than the kernel's own bound of arguments.
const MAX_WORDS: usize = 1 << 22;
/// Bytes of a value that are looked at.
const MAX_BYTES: usize = 32;
/// `AT_RANDOM` of the auxiliary vector: address of 16 bytes.
const AT_RANDOM: usize = 25;

const NAME: &[u8] = b"SAMPLER_INTERVAL=";

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The value of `SAMPLER_INTERVAL`.
    pub interval: Option<&'static [u8]>,
    /// 64 bits that differ from one program image to the next.
    pub random: u64,
}

/// Reads them.
pub fn read() -> Start {
    let end = weak!("__libc_stack_end") as *const *const usize;
    // Whatever else there is: where we were loaded.
    let mut start = Start { interval: None, random: read as *const () as u64 };
    if end.is_null() {
        // And when: without random addresses that is always the same.
        // SAFETY: reads a counter, which every processor that this is built for has.
        start.random ^= crate::thread::mixed(unsafe { core::arch::x86_64::_rdtsc() });
        let environment = weak!("environ") as *const *const *const u8;
        // SAFETY: the program's variable, null until its libc has begun.
        if let Some(environment) = unsafe { environment.as_ref() }.filter(|of| !of.is_null()) {
            interval(environment.cast(), 0, &mut start);
        }
        return start;
    }
    // SAFETY: the loader's variable, written before it relocates anything.
    let stack = unsafe { end.read() };
    // SAFETY: the first word is there.
    let arguments = unsafe { stack.read() };
    if arguments < MAX_WORDS {
        let auxiliary = interval(stack, arguments + 2, &mut start);
        random(stack, auxiliary, &mut start);
    }
    start
}

/// Looks through the environment at word `from`; the word behind its end.
fn interval(words: *const usize, from: usize, start: &mut Start) -> usize {
    for at in from..from + MAX_WORDS {
        // SAFETY: the list ends with a zero.
        let text = unsafe { words.wrapping_add(at).read() } as *const u8;
        if text.is_null() {
            return at + 1;
        }
        // SAFETY: texts end with a zero, which no byte of the name equals.
        let byte = |at: usize| unsafe { text.wrapping_add(at).read() };
        if NAME.iter().enumerate().all(|(at, of)| byte(at) == *of) {
            let length = (0..MAX_BYTES).take_while(|at| byte(NAME.len() + at) != 0).count();
            // SAFETY: so many bytes are there, and the first of several entries counts for libc, too.
            let value =
                unsafe { core::slice::from_raw_parts(text.wrapping_add(NAME.len()), length) };
            start.interval = start.interval.or(Some(value));
        }
    }
    from
}

fn random(words: *const usize, from: usize, start: &mut Start) {
    for at in (from..from + MAX_WORDS).step_by(2) {
        // SAFETY: the list ends with a key of 0.
        let key = unsafe { words.wrapping_add(at).read() };
        if key == 0 {
            return;
        }
        if key == AT_RANDOM {
            // SAFETY: each key has a value.
            let bytes = unsafe { words.wrapping_add(at + 1).read() } as *const u64;
            // SAFETY: 16 bytes, which need not be aligned.
            let words = [0, 1].map(|half| unsafe { bytes.wrapping_add(half).read_unaligned() });
            // They guard stacks as well: half of what is there is thrown away.
            start.random ^= crate::thread::mixed(words[0]) ^ words[1].rotate_left(29);
            return;
        }
    }
}
