//! What the kernel left on the initial stack: the environment at the start, and random bytes.
//!
//! The layout is `argc, argv…, 0, envp…, 0, (key, value)…, (0, 0)` (System V ABI, AMD64 supplement,
//! 3.4.1), from `__libc_stack_end`. The initial stack exists before any call can arrive, and
//! reading it needs no other code. Without `__libc_stack_end` (musl), or if something else stands
//! there, the program's `environ` and the processor's time-stamp counter replace the environment
//! and the random bytes.

use crate::next::weak;

/// Maximum number of words on the stack that are read: more than the kernel's own limit of
/// arguments.
const MAX_WORDS: usize = 1 << 22;
/// Maximum bytes of the initial stack: the kernel limits arguments and environment to 6 MiB.
const MAX_STACK_BYTES: usize = 16 << 20;
/// Bytes of a value that are read.
const MAX_BYTES: usize = 32;
/// `AT_RANDOM` of the auxiliary vector: address of 16 bytes.
const AT_RANDOM: usize = 25;

const NAME: &[u8] = b"SAMPLER_INTERVAL=";

/// The start parameters.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The value of `SAMPLER_INTERVAL`.
    pub interval: Option<&'static [u8]>,
    /// 64 bits that differ from one program image to the next.
    pub random: u64,
}

/// Reads the start parameters.
pub fn read() -> Start {
    let end = weak!("__libc_stack_end") as *const *const usize;
    // The load address of this library is always part of the random bits.
    let mut start = Start { interval: None, random: read as *const () as u64 };
    // SAFETY: the loader's variable, written before it relocates anything.
    let stack = unsafe { end.as_ref() }.copied();
    if let Some((stack, environment, auxiliary)) = stack.and_then(initial) {
        interval(stack, environment, &mut start);
        random(stack, auxiliary, &mut start);
        return start;
    }
    // The time is the other part: without address randomization the load address is always the
    // same.
    // SAFETY: reads a counter, which every processor that this library is built for has.
    start.random ^= crate::thread::mixed(unsafe { core::arch::x86_64::_rdtsc() });
    let environment = weak!("environ") as *const *const *const u8;
    // SAFETY: the program's variable, null until its libc has started.
    if let Some(environment) = unsafe { environment.as_ref() }.filter(|of| !of.is_null()) {
        interval(environment.cast(), 0, &mut start);
    }
    start
}

/// The initial stack, and the words at which its environment and its auxiliary vector begin. `None`
/// if something else is there. For example, an older loader (glibc 2.31) that is started as a
/// program leaves its own arguments below the stack, where calls overwrite them.
fn initial(stack: *const usize) -> Option<(*const usize, usize, usize)> {
    // SAFETY: the stack reaches to this word.
    let arguments = unsafe { stack.read() };
    let environment = behind_texts(stack, 1)?;
    let auxiliary = behind_texts(stack, environment)?;
    let is_initial = arguments > 0 && arguments.checked_add(2)? == environment;
    is_initial.then_some((stack, environment, auxiliary))
}

/// Index of the word behind a list of texts that begins at word `from`. `None` if a word of the
/// list points to no text of the initial stack.
fn behind_texts(stack: *const usize, from: usize) -> Option<usize> {
    let texts = stack as usize..(stack as usize).checked_add(MAX_STACK_BYTES)?;
    for at in from..MAX_WORDS {
        // SAFETY: texts lie behind the words that point to them, so there is a word here as long as
        // all words before it did, or were zero once.
        match unsafe { stack.wrapping_add(at).read() } {
            0 => return Some(at + 1),
            text if !texts.contains(&text) => return None,
            _ => {}
        }
    }
    None
}

/// Searches the environment at word `from`.
fn interval(words: *const usize, from: usize, start: &mut Start) {
    for at in from..from + MAX_WORDS {
        // SAFETY: the list ends with a zero.
        let text = unsafe { words.wrapping_add(at).read() } as *const u8;
        if text.is_null() {
            return;
        }
        // SAFETY: texts end with a zero, which no byte of the name equals.
        let byte = |at: usize| unsafe { text.wrapping_add(at).read() };
        if NAME.iter().enumerate().all(|(at, of)| byte(at) == *of) {
            let length = (0..MAX_BYTES).take_while(|at| byte(NAME.len() + at) != 0).count();
            // SAFETY: `length` bytes are there. Of several entries the first one counts, as for
            // libc.
            let value =
                unsafe { core::slice::from_raw_parts(text.wrapping_add(NAME.len()), length) };
            start.interval = start.interval.or(Some(value));
        }
    }
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
            if !(words as usize..words as usize + MAX_STACK_BYTES).contains(&(bytes as usize)) {
                return;
            }
            // SAFETY: 16 bytes, which need not be aligned.
            let words = [0, 1].map(|half| unsafe { bytes.wrapping_add(half).read_unaligned() });
            // The bytes guard stacks as well: half of their information is discarded.
            start.random ^= crate::thread::mixed(words[0]) ^ words[1].rotate_left(29);
            return;
        }
    }
}
