//! One function in memory with one hook: its text, trampolines at the landings, the function as it
//! was.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, Register,
};
use sampler_inject::prologue::{Function, HookPlace, original, trampoline, trampoline_length};

use crate::memory::{PAGE_BYTES, Pages};
use crate::step::{End, FLAGS, Registers, run};

/// Where the trampolines lead: nothing lies there, so that a run ends.
pub(crate) const IMAGE: u64 = 0x1234_5670_0000;
/// Memory that arguments and pointers in the library's data refer to.
const DATA: u64 = 0x1234_0000_0000;
/// The stack that the code runs on.
const STACK: Range<u64> = 0x1235_0000_0000..0x1235_0000_1000;
const STACK_BYTES: usize = (STACK.end - STACK.start) as usize;
/// Where the copies lie that stand for the kernel's: as near to the function as its own data.
const COPIES_BEHIND: u64 = 0x300_0000;
/// A word of thread-local memory that every thread has: `fs:-64`.
const THREAD_LOCAL: u64 = 64_u64.wrapping_neg();
const BREAKPOINT: u8 = 0xcc;

/// Registers that a called function may leave changed.
const SCRATCH: [i32; 3] = [libc::REG_RAX, libc::REG_R10, libc::REG_R11];
/// Registers that it has to leave as they were.
const KEPT: [i32; 7] = [
    libc::REG_RBX,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
const ARGUMENTS: [i32; 6] =
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_RCX, libc::REG_R8, libc::REG_R9];

/// The function and the hook.
pub(crate) struct Bench<'f> {
    function: Function<'f>,
    place: &'f HookPlace,
    pages: Pages,
    original: Range<u64>,
    /// Words that the instructions find relative to themselves, by address.
    operands: Vec<(u64, u64)>,
    /// Copies of instructions for breakpoints, by the instruction's address.
    copies: HashMap<u64, u64>,
    copied: Range<u64>,
}

/// What the rest of a function sees.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    end: End,
    registers: Vec<i64>,
    flags: i64,
    /// A hash of the stack and of the data.
    memory: u64,
}

/// A run from the entry: where it ended, and with which registers and memory.
pub(crate) struct Outcome {
    pub(crate) end: End,
    pub(crate) registers: Registers,
    memory: Vec<u8>,
}

impl<'f> Bench<'f> {
    /// Maps everything; `None`: this test process has something where it should lie, or data are
    /// too far away.
    pub(crate) fn new(function: Function<'f>, place: &'f HookPlace) -> Option<Bench<'f>> {
        let mut bench = Bench {
            function,
            place,
            pages: Pages::new(),
            original: 0..0,
            operands: Vec::new(),
            copies: HashMap::new(),
            copied: 0..0,
        };
        let text = function.entry..function.entry + function.bytes.len() as u64;
        let is_there = bench.pages.map(text)
            && bench.pages.map(STACK)
            && bench.pages.map(DATA..DATA + 2 * PAGE_BYTES)
            && bench.map_operands()
            && bench.map_trampolines();
        if !is_there {
            return None;
        }
        (bench.map_original() && bench.map_copies()).then_some(bench)
    }

    fn instructions(&self) -> Vec<Instruction> {
        let of = &self.function;
        let mut decoder = Decoder::with_ip(64, of.bytes, of.entry, DecoderOptions::NONE);
        (0..=self.place.depth).map(|_| decoder.decode()).collect()
    }

    /// Maps what the instructions read relative to themselves: words of the library's data, which
    /// are pointers or offsets of thread-local variables.
    fn map_operands(&mut self) -> bool {
        let instructions = self.instructions();
        let is_thread_local = instructions.iter().any(|instruction| {
            instruction.segment_prefix() == Register::FS
                && instruction.memory_base() != Register::None
        });
        let word = if is_thread_local { THREAD_LOCAL } else { DATA + PAGE_BYTES };
        let operands = instructions.iter().filter(|it| it.is_ip_rel_memory_operand());
        operands.map(Instruction::ip_rel_memory_address).all(|address| {
            let is_there = self.pages.map(address..address + 8);
            let is_text = address.abs_diff(self.function.entry) < PAGE_BYTES;
            if is_there && !is_text {
                self.operands.push((address, word));
            }
            is_there
        })
    }

    fn map_trampolines(&mut self) -> bool {
        let length = trampoline_length(self.place);
        let mut own: Vec<u64> = Vec::new();
        let mut slots = Vec::new();
        for landing in &self.place.landings {
            for address in [*landing, *landing + length - 1] {
                let page = address / PAGE_BYTES * PAGE_BYTES;
                let is_new = !self.pages.contains(page) && self.pages.map(page..page + 1);
                if !is_new && !own.contains(&page) {
                    return false;
                }
                own.push(page);
            }
            let Some(slot) = self.slot(*landing, length) else { return false };
            slots.push((*landing, slot));
        }
        for (landing, slot) in slots {
            self.pages.write(slot, &IMAGE.to_le_bytes());
            let code = trampoline(self.place, landing, slot).unwrap();
            self.pages.write(landing, &code);
        }
        true
    }

    /// A place for the pointer on the page of a landing, where no trampoline lies.
    fn slot(&self, landing: u64, length: u64) -> Option<u64> {
        let page = landing / PAGE_BYTES * PAGE_BYTES;
        let is_free = |slot: &u64| {
            let trampolines = self.place.landings.iter();
            trampolines.clone().all(|at| slot + 8 <= *at || at + length <= *slot)
        };
        (page..page + PAGE_BYTES).step_by(8).find(is_free)
    }

    fn map_original(&mut self) -> bool {
        let entry = self.function.entry;
        let far = (1..).map(|number| (entry / PAGE_BYTES + 0x1000 * number) * PAGE_BYTES);
        let page = far
            .take(16)
            .find(|page| !self.pages.contains(*page) && self.pages.map(*page..*page + 1));
        let address = page.unwrap() + 0x123;
        let Ok(code) = original(self.place, &self.function, address) else { return false };
        self.pages.write(address, &code);
        self.original = address..address + code.len() as u64;
        true
    }

    /// Copies of the instructions up to the hooked one. Each ends with a jump back.
    fn map_copies(&mut self) -> bool {
        let start = self.function.entry / PAGE_BYTES * PAGE_BYTES + COPIES_BEHIND;
        self.copied = start..start + PAGE_BYTES;
        assert!(self.pages.map(self.copied.clone()));
        for (number, instruction) in self.instructions().into_iter().enumerate() {
            let address = start + 64 * number as u64;
            let mut both = vec![instruction];
            if !matches!(
                instruction.flow_control(),
                FlowControl::Return | FlowControl::IndirectBranch
            ) {
                both.push(
                    Instruction::with_branch(Code::Jmp_rel32_64, instruction.next_ip()).unwrap(),
                );
            }
            let block = InstructionBlock::new(&both, address);
            let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
            let Ok(code) = encoded else { return false };
            assert!(code.code_buffer.len() <= 64);
            self.pages.write(address, &code.code_buffer);
            self.copies.insert(instruction.ip(), address);
        }
        true
    }

    /// Addresses of the instructions up to the hooked one.
    pub(crate) fn before(&self) -> Vec<u64> {
        self.instructions().iter().map(Instruction::ip).collect()
    }

    /// Writes the function's text, with the hook and with breakpoints, and all that a call finds.
    fn prepare(&mut self, is_hooked: bool, breakpoints: &[u64]) {
        self.reset();
        let mut text = self.function.bytes.to_vec();
        let entry = self.function.entry;
        if is_hooked {
            text[(self.place.patch - entry) as usize] = 0xe9;
        }
        for address in breakpoints {
            text[(address - entry) as usize] = BREAKPOINT;
        }
        self.pages.write(entry, &text);
    }

    /// Registers at the entry.
    pub(crate) fn registers(&self, mut random: impl FnMut() -> u64) -> Registers {
        let mut registers: Registers = std::array::from_fn(|_| random() as i64);
        for argument in ARGUMENTS {
            registers[argument as usize] = match random() % 4 {
                0 => (random() % 4096) as i64,
                1 => (DATA + PAGE_BYTES + random() % 128 * 16) as i64,
                2 => (random() % 3) as i64,
                _ => random() as i64 >> (random() % 64),
            };
        }
        registers[libc::REG_RSP as usize] = STACK.end as i64 - 0x408;
        registers[libc::REG_RIP as usize] = self.function.entry as i64;
        registers[libc::REG_EFL as usize] = 0x202;
        registers
    }

    /// The same with other values where a function expects nothing.
    pub(crate) fn with_other_scratch(
        &self,
        registers: &Registers,
        mut random: impl FnMut() -> u64,
    ) -> Registers {
        let mut other = *registers;
        let unused = &ARGUMENTS[usize::from(self.function.arguments)..];
        for register in SCRATCH.iter().chain(unused) {
            other[*register as usize] = random() as i64;
        }
        other[libc::REG_EFL as usize] = 0x202 | random() as i64 & FLAGS & !0x400;
        other
    }

    /// Puts stack and data as they are before a call.
    fn reset(&mut self) {
        self.pages.write(STACK.start, &[0xa5; STACK_BYTES]);
        self.pages.write(DATA, &[0x5a; 2 * PAGE_BYTES as usize]);
        for (address, word) in self.operands.clone() {
            self.pages.write(address, &word.to_le_bytes());
        }
    }

    fn run(&mut self, registers: &Registers, inside: &[Range<u64>]) -> Outcome {
        let mut registers = *registers;
        let end = run(&mut registers, inside, &self.copies);
        let mut memory = self.pages.read(STACK.start, STACK_BYTES);
        memory.extend(self.pages.read(DATA, 2 * PAGE_BYTES as usize));
        Outcome { end, registers, memory }
    }

    /// Runs the function's own bytes, until they come behind the hooked instruction.
    pub(crate) fn run_unhooked(&mut self, registers: &Registers, breakpoints: &[u64]) -> Outcome {
        self.prepare(false, breakpoints);
        self.run_in_place(registers)
    }

    /// As [`Bench::run_unhooked`] with the hook in its place, and a breakpoint over it.
    pub(crate) fn run_covered(&mut self, registers: &Registers, breakpoints: &[u64]) -> Outcome {
        self.prepare(true, breakpoints);
        self.run_in_place(registers)
    }

    fn run_in_place(&mut self, registers: &Registers) -> Outcome {
        let text = self.function.entry..self.place.resume;
        let copied = self.copied.clone();
        self.run(registers, &[text, copied])
    }

    /// Runs the hooked function, until it comes into the image or leaves by another way.
    pub(crate) fn run_hooked(&mut self, registers: &Registers, breakpoints: &[u64]) -> Outcome {
        self.prepare(true, breakpoints);
        let length = trampoline_length(self.place);
        let mut inside = vec![self.function.entry..self.place.patch + 1, self.copied.clone()];
        inside.extend(self.place.landings.iter().map(|landing| *landing..*landing + length));
        self.run(registers, &inside)
    }

    /// Runs what stands for the function, until it is back in the function. It finds the memory
    /// that the last run has left.
    pub(crate) fn run_original(&mut self, registers: &Registers) -> Outcome {
        let mut registers = *registers;
        registers[libc::REG_RIP as usize] = self.original.start as i64;
        let inside = [self.original.clone()];
        self.run(&registers, &inside)
    }

    /// Whether a call with these registers frees nothing, or cannot succeed.
    pub(crate) fn may_be_missed(&self, registers: &Registers) -> bool {
        let first = registers[libc::REG_RDI as usize];
        let second = registers[libc::REG_RSI as usize];
        let product = (first as u64).checked_mul(second as u64);
        let is_no_block = self.function.is_free && (first == 0 || first & 15 != 0);
        let is_too_much = product.is_none_or(|product| product >= 1 << 63);
        is_no_block || first < 0 || self.function.arguments == 2 && is_too_much
    }

    /// Whether all that a function finds at its entry is as it was.
    pub(crate) fn is_like_a_call(&self, outcome: &Outcome, registers: &Registers) -> bool {
        let arguments = &ARGUMENTS[..usize::from(self.function.arguments)];
        let is_kept =
            |register: &i32| outcome.registers[*register as usize] == registers[*register as usize];
        KEPT.iter().chain(arguments).all(is_kept)
    }
}

impl Outcome {
    /// Where the run went on.
    pub(crate) fn next(&self) -> u64 {
        self.registers[libc::REG_RIP as usize] as u64
    }

    /// All that the rest of the function sees.
    pub(crate) fn seen(&self) -> Seen {
        let mut memory = DefaultHasher::new();
        self.memory.hash(&mut memory);
        Seen {
            end: self.end,
            registers: self.registers[..=libc::REG_RIP as usize].to_vec(),
            flags: self.registers[libc::REG_EFL as usize] & FLAGS,
            memory: memory.finish(),
        }
    }
}
