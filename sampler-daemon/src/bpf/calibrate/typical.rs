//! Code as programs have it between two allocations: trees, interpreters, words, numbers.
//!
//! It is of the standard library as far as it goes, since that is what real programs are made of: branches that depend on data, calls in layers, tables larger than
//! first-level caches. Every step is the same whenever it is made, so that it can be made with and without a trap behind it. And steps come again soon, as in the loops that
//! programs are made of: what processors learn of such, and lose by a trap, is most of what a trap adds to programs.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::io::Write as _;

/// Keys of the tree, words of the text, instructions of the program.
const KEYS: u64 = 4096;
const WORDS: usize = 8192;
const INSTRUCTIONS: usize = 1024;
/// Instructions and words of a step.
const RUN: usize = 32;
const READ: usize = 4;

/// Steps of a kind, after which they come again. Steps that hardly ever do lose 0.6 of that (25 ns to 43 by turns on an Intel machine), on which programs lose 1.0 to 1.6 of it.
const CYCLE: u64 = 40;

/// Kinds of steps.
pub(super) const KINDS: usize = 4;

type Key = [u8; 16];

/// What the steps work on.
pub(super) struct Typical {
    tree: BTreeMap<Key, u64>,
    code: Vec<(u8, u8, i64)>,
    text: Vec<u8>,
    counts: HashMap<Vec<u8>, u32, BuildHasherDefault<DefaultHasher>>,
    line: Vec<u8>,
}

/// SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", 2014).
fn mixed(of: u64) -> u64 {
    let z = of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(of: u64) -> Key {
    let mut key = Key::default();
    let mut left = mixed(of);
    for digit in &mut key {
        *digit = b"0123456789abcdef"[(left & 15) as usize];
        left >>= 4;
    }
    key
}

impl Typical {
    pub(super) fn new() -> Typical {
        let tree = (0..KEYS).map(|at| (key(at), at)).collect();
        let instruction = |at: u64| {
            let bits = mixed(at);
            ((bits & 15) as u8, (bits >> 8) as u8 & 7, (bits >> 16) as i64 & 0xffff)
        };
        let code = (0..INSTRUCTIONS as u64).map(instruction).collect();
        // Words are the more frequent the shorter they are.
        let word = |at: u64| {
            let bits = mixed(at);
            let most = 1 << (1 + bits % 12);
            let key = key(bits % most);
            [&key[..2 + (bits % 9) as usize], b" "].concat()
        };
        let text: Vec<u8> = (0..WORDS as u64).flat_map(word).collect();
        let words = text.split(|byte| *byte == b' ').map(<[u8]>::to_vec);
        let counts = words.map(|word| (word, 0)).collect();
        Typical { tree, code, text, counts, line: Vec::new() }
    }

    /// The step of a kind and a number.
    pub(super) fn step(&mut self, kind: usize, at: u64) {
        let at = at % CYCLE;
        match kind {
            0 => self.look_up(at),
            1 => self.interpret(at),
            2 => self.count_words(at),
            _ => self.print(at),
        }
    }

    fn look_up(&mut self, at: u64) {
        if let Some(value) = self.tree.get_mut(&key(mixed(at) % KEYS)) {
            *value = value.wrapping_add(at);
        }
    }

    fn interpret(&mut self, at: u64) {
        let mut registers = [at as i64, 3, 1, 4, 1, 5, 9, 2];
        let mut pc = mixed(at) as usize;
        for _ in 0..RUN {
            let (operation, which, operand) = self.code[pc % INSTRUCTIONS];
            pc += 1;
            let which = usize::from(which);
            let value = registers[which];
            let other = registers[(which + 1) % registers.len()];
            registers[which] = match operation {
                0 => value.wrapping_add(operand),
                1 => value.wrapping_sub(other),
                2 => value.wrapping_mul(operand | 1),
                3 => value ^ other,
                4 => value.rotate_left(operand as u32 & 31),
                5 => other,
                6 => operand,
                7 if value & 1 == 0 => value >> 1,
                8 => value.max(other),
                9 => {
                    pc += (value & 7) as usize;
                    value
                }
                10 if value > other => {
                    pc += 5;
                    other
                }
                11 => i64::from(value.count_ones()),
                12 => value / (operand | 1),
                13 => !value,
                14 => value.saturating_add(other),
                _ => value.wrapping_add(1),
            };
        }
        black_box(registers);
    }

    fn count_words(&mut self, at: u64) {
        let from = mixed(at) as usize % (self.text.len() - 256);
        let words = self.text[from..].split(|byte| *byte == b' ').skip(1).take(READ);
        for word in words {
            if let Some(count) = self.counts.get_mut(word) {
                *count = count.wrapping_add(1);
            }
        }
    }

    fn print(&mut self, at: u64) {
        self.line.clear();
        // Writing to a vector cannot fail.
        let _ = write!(self.line, "{} {:x}", mixed(at) >> 30, at);
        black_box(self.line.iter().rposition(|byte| *byte == b' '));
    }
}
