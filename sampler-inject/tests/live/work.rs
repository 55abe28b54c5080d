//! Threads that allocate by every function, write what they get and read it back.

use std::collections::HashMap;

use crate::allocator::Family;

const THREADS: u64 = 4;
const ROUNDS: u64 = 3_000;
/// Blocks that a thread holds at a time.
const HELD: usize = 64;

type Alloc = unsafe extern "C" fn(usize) -> *mut u8;
type AllocTwo = unsafe extern "C" fn(usize, usize) -> *mut u8;
type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
type Memalign = unsafe extern "C" fn(*mut *mut u8, usize, usize) -> i32;
type Free = unsafe extern "C" fn(*mut u8);

/// One thread's blocks and counts.
pub(crate) struct Work {
    functions: HashMap<&'static str, u64>,
    blocks: Vec<(*mut u8, usize, u8)>,
    calls: HashMap<&'static str, u64>,
    random: u64,
}

impl Work {
    /// How often each function was called.
    pub(crate) fn done_by_four_threads(families: &[Family]) -> HashMap<&'static str, u64> {
        let mut calls = HashMap::new();
        let counts: Vec<_> = std::thread::scope(|scope| {
            let start = |thread| scope.spawn(move || Work::new(families, thread).run());
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (name, count) in counts.into_iter().flatten() {
            *calls.entry(name).or_default() += count;
        }
        calls
    }

    fn new(families: &[Family], thread: u64) -> Work {
        Work {
            functions: families.iter().map(|family| (family.name, family.address)).collect(),
            blocks: Vec::new(),
            calls: HashMap::new(),
            random: 0x9e37_79b9_7f4a_7c15_u64.rotate_left(thread as u32),
        }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn run(mut self) -> HashMap<&'static str, u64> {
        let mut names: Vec<&'static str> = self.functions.keys().copied().collect();
        names.sort_unstable();
        for _ in 0..ROUNDS {
            let name = names[self.next() as usize % names.len()];
            self.call(name);
        }
        while !self.blocks.is_empty() {
            self.release("free");
        }
        self.calls
    }

    fn call(&mut self, name: &'static str) {
        let size = match self.next() % 20 {
            0 => 100_000 + self.next() as usize % 400_000,
            1..5 => 1_000 + self.next() as usize % 8_000,
            _ => 1 + self.next() as usize % 400,
        };
        match name {
            "free" | "_ZdlPv" | "_ZdaPv" => self.release(name),
            "realloc" => self.resize(size),
            _ if self.blocks.len() < HELD => self.allocate(name, size),
            _ => self.release("free"),
        }
    }

    fn count(&mut self, name: &'static str) -> u64 {
        *self.calls.entry(name).or_default() += 1;
        self.functions[name]
    }

    fn allocate(&mut self, name: &'static str, size: usize) {
        let address = self.count(name);
        let alignment = 16 << (self.next() % 3);
        let (block, alignment) = match name {
            "calloc" => (two(address, size.div_ceil(8), 8), 8),
            "memalign" | "aligned_alloc" => {
                (two(address, alignment, size.next_multiple_of(alignment)), alignment)
            }
            "posix_memalign" => (memalign(address, alignment, size), alignment),
            "valloc" | "pvalloc" => (one(address, size), 4096),
            _ => (one(address, size), 8),
        };
        assert!(
            !block.is_null() && (block as usize).is_multiple_of(alignment),
            "{name}({size}): {block:?}, {alignment}"
        );
        let bytes = contents(block, size);
        assert!(name != "calloc" || bytes.iter().all(|byte| *byte == 0), "calloc");
        self.keep(block, size);
    }

    /// Fills a block and remembers it.
    fn keep(&mut self, block: *mut u8, size: usize) {
        let fill = self.next() as u8;
        contents(block, size).fill(fill);
        self.blocks.push((block, size, fill));
    }

    fn any_block(&mut self) -> Option<(*mut u8, usize, u8)> {
        let count = self.blocks.len() as u64;
        let index = self.next().checked_rem(count)?;
        Some(self.blocks.swap_remove(index as usize))
    }

    fn release(&mut self, name: &'static str) {
        let Some((block, size, fill)) = self.any_block() else { return };
        assert!(contents(block, size).iter().all(|byte| *byte == fill), "{name}: contents");
        let address = self.count(name);
        // SAFETY: the function is an allocator's with this type.
        let function = unsafe { std::mem::transmute::<u64, Free>(address) };
        // SAFETY: the block is this thread's, and is not used again.
        unsafe { function(block) };
    }

    fn resize(&mut self, size: usize) {
        let address = self.count("realloc");
        let (block, old, fill) = self.any_block().unwrap_or((std::ptr::null_mut(), 0, 0));
        // SAFETY: the function is an allocator's with this type.
        let function = unsafe { std::mem::transmute::<u64, Realloc>(address) };
        // SAFETY: the block is this thread's or null, and is not used again.
        let block = unsafe { function(block, size) };
        assert!(!block.is_null());
        assert!(contents(block, old.min(size)).iter().all(|byte| *byte == fill), "realloc");
        self.keep(block, size);
    }
}

fn one(address: u64, size: usize) -> *mut u8 {
    // SAFETY: the function is an allocator's with this type.
    let function = unsafe { std::mem::transmute::<u64, Alloc>(address) };
    // SAFETY: any size can be asked for.
    unsafe { function(size) }
}

fn two(address: u64, first: usize, second: usize) -> *mut u8 {
    // SAFETY: the function is an allocator's with this type.
    let function = unsafe { std::mem::transmute::<u64, AllocTwo>(address) };
    // SAFETY: any size can be asked for, and any alignment that is a power of two.
    unsafe { function(first, second) }
}

fn memalign(address: u64, alignment: usize, size: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut();
    // SAFETY: the function is an allocator's with this type.
    let function = unsafe { std::mem::transmute::<u64, Memalign>(address) };
    // SAFETY: there is room for a pointer.
    let error = unsafe { function(&mut block, alignment, size) };
    assert_eq!(error, 0);
    block
}

fn contents<'b>(block: *mut u8, size: usize) -> &'b mut [u8] {
    // SAFETY: the block is this thread's and has this size.
    unsafe { std::slice::from_raw_parts_mut(block, size) }
}
