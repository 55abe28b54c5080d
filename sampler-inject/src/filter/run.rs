//! Runs a program that the kernel would install.

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_DIV, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT,
    BPF_JMP, BPF_JSET, BPF_LD, BPF_LDX, BPF_LEN, BPF_LSH, BPF_MEM, BPF_MEMWORDS, BPF_MUL, BPF_NEG,
    BPF_OR, BPF_RET, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB, BPF_TXA, BPF_X, BPF_XOR, sock_filter,
};

use super::Call;

/// `sizeof(struct seccomp_data)`.
pub(super) const DATA_BYTES: u32 = 64;
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;

/// `struct seccomp_data` in words: number, architecture, instruction pointer, six arguments.
pub(super) struct Data([u32; DATA_BYTES as usize / 4]);

impl Data {
    /// Fills the structure for a call. The kernel keeps only the lower half of the call's number.
    pub(super) fn new(call: &Call) -> Data {
        let mut words = [0; DATA_BYTES as usize / 4];
        words[0] = call.nr as u32;
        words[1] = ARCHITECTURE;
        let halves = [call.ip].into_iter().chain(call.args);
        for (pair, of) in words[2..].chunks_exact_mut(2).zip(halves) {
            pair.copy_from_slice(&[of as u32, (of >> 32) as u32]);
        }
        Data(words)
    }

    fn load(&self, offset: u32) -> u32 {
        self.0.get(offset as usize / 4).copied().unwrap_or_default()
    }
}

/// How a run continues after an instruction.
enum Step {
    /// Skips this many instructions.
    Skip(u32),
    Return(u32),
}

#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    memory: [u32; BPF_MEMWORDS as usize],
}

/// Runs the program and returns its action. Every jump leads forward, so a run has at most as many
/// steps as instructions.
pub(super) fn run(program: &[sock_filter], data: &Data) -> u32 {
    let mut machine = Machine::default();
    let mut next = 0;
    while let Some(instruction) = program.get(next) {
        match machine.step(instruction, data) {
            Step::Skip(distance) => next += 1 + distance as usize,
            Step::Return(action) => return action,
        }
    }
    // No checked program reaches its end. The kernel would kill the thread there.
    libc::SECCOMP_RET_KILL_THREAD
}

impl Machine {
    fn step(&mut self, instruction: &sock_filter, data: &Data) -> Step {
        let code = u32::from(instruction.code);
        let k = instruction.k;
        match code & 0x07 {
            BPF_LD => self.a = self.loaded(code, k, data),
            BPF_LDX => self.x = self.loaded(code, k, data),
            BPF_ST => self.store(k, self.a),
            BPF_STX => self.store(k, self.x),
            BPF_ALU => match self.computed(code, k) {
                Some(result) => self.a = result,
                // A division by zero ends the program with 0.
                None => return Step::Return(0),
            },
            BPF_JMP => return Step::Skip(self.jumped(code, instruction)),
            BPF_RET if code & 0x18 == BPF_A => return Step::Return(self.a),
            BPF_RET => return Step::Return(k),
            _ if code & 0xf8 == BPF_TXA => self.a = self.x,
            _ => self.x = self.a,
        }
        Step::Skip(0)
    }

    fn loaded(&self, code: u32, k: u32, data: &Data) -> u32 {
        match code & 0xe0 {
            BPF_IMM => k,
            BPF_ABS => data.load(k),
            BPF_MEM => self.memory.get(k as usize).copied().unwrap_or_default(),
            BPF_LEN => DATA_BYTES,
            _ => 0,
        }
    }

    fn store(&mut self, k: u32, value: u32) {
        if let Some(word) = self.memory.get_mut(k as usize) {
            *word = value;
        }
    }

    fn operand(&self, code: u32, k: u32) -> u32 {
        if code & BPF_X == BPF_X { self.x } else { k }
    }

    fn computed(&self, code: u32, k: u32) -> Option<u32> {
        let operand = self.operand(code, k);
        Some(match code & 0xf0 {
            BPF_ADD => self.a.wrapping_add(operand),
            BPF_SUB => self.a.wrapping_sub(operand),
            BPF_MUL => self.a.wrapping_mul(operand),
            BPF_DIV => return self.a.checked_div(operand),
            BPF_AND => self.a & operand,
            BPF_OR => self.a | operand,
            BPF_XOR => self.a ^ operand,
            // The processor uses five bits of the distance, and so does the kernel's interpreter.
            BPF_LSH => self.a.wrapping_shl(operand),
            BPF_RSH => self.a.wrapping_shr(operand),
            BPF_NEG => self.a.wrapping_neg(),
            _ => return None,
        })
    }

    fn jumped(&self, code: u32, instruction: &sock_filter) -> u32 {
        let operand = self.operand(code, instruction.k);
        let holds = match code & 0xf0 {
            BPF_JA => return instruction.k,
            BPF_JEQ => self.a == operand,
            BPF_JGT => self.a > operand,
            BPF_JGE => self.a >= operand,
            BPF_JSET => self.a & operand != 0,
            _ => false,
        };
        u32::from(if holds { instruction.jt } else { instruction.jf })
    }
}
