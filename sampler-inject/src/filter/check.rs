//! Checks which programs the kernel would install.

use libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_DIV, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT,
    BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_LSH, BPF_MAXINSNS, BPF_MEM,
    BPF_MEMWORDS, BPF_MISC, BPF_MUL, BPF_NEG, BPF_OR, BPF_RET, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB,
    BPF_TAX, BPF_TXA, BPF_W, BPF_X, BPF_XOR, sock_filter,
};

use super::Error;
use super::run::DATA_BYTES;

/// A set of memory words, one bit each.
type WordSet = u16;
const ALL: WordSet = WordSet::MAX;
const _: () = assert!(BPF_MEMWORDS as u32 == WordSet::BITS);

/// Checks a program as the kernel does before it installs it.
pub(super) fn check(program: &[sock_filter]) -> Result<(), Error> {
    let instructions = program.len();
    if instructions == 0 || instructions > BPF_MAXINSNS as usize {
        return Err(Error::Length { instructions });
    }
    for (index, instruction) in program.iter().enumerate() {
        check_constant(index, instruction)?;
        for target in targets(index, instruction) {
            if target >= instructions as u64 {
                return Err(Error::Jump { index });
            }
        }
    }
    check_memory(program)?;
    match program.last().map(|last| u32::from(last.code) & 0x07) {
        Some(BPF_RET) => Ok(()),
        _ => Err(Error::End),
    }
}

/// Checks that an instruction's constant is in its range.
fn check_constant(index: usize, instruction: &sock_filter) -> Result<(), Error> {
    let k = instruction.k;
    let is_in_range = match Code::of(instruction) {
        Code::LoadData => k < DATA_BYTES && k.is_multiple_of(4),
        Code::DivideByConstant => k != 0,
        Code::ShiftByConstant => k < 32,
        Code::LoadMemory | Code::StoreMemory => k < BPF_MEMWORDS as u32,
        Code::Plain | Code::Jump | Code::Branch | Code::Return => true,
        Code::Unknown => return Err(Error::Code { index, code: instruction.code }),
    };
    is_in_range.then_some(()).ok_or(Error::Constant { index, k })
}

/// Jump targets of an instruction.
fn targets(index: usize, instruction: &sock_filter) -> Vec<u64> {
    let next = index as u64 + 1;
    match Code::of(instruction) {
        Code::Jump => vec![next + u64::from(instruction.k)],
        Code::Branch => {
            vec![next + u64::from(instruction.jt), next + u64::from(instruction.jf)]
        }
        _ => Vec::new(),
    }
}

/// Checks that every path to a load of a memory word has stored that word before. All jumps lead
/// forward, so one pass suffices.
fn check_memory(program: &[sock_filter]) -> Result<(), Error> {
    // For each instruction: words that every jump to it has written.
    let mut written = vec![ALL; program.len()];
    // Words that are written on the straight line so far.
    let mut words: WordSet = 0;
    for (index, instruction) in program.iter().enumerate() {
        words &= written[index];
        match Code::of(instruction) {
            Code::StoreMemory => words |= 1 << instruction.k,
            Code::LoadMemory if words & 1 << instruction.k == 0 => {
                return Err(Error::Unwritten { index });
            }
            Code::Jump | Code::Branch => {
                for target in targets(index, instruction) {
                    if let Some(at) = written.get_mut(target as usize) {
                        *at &= words;
                    }
                }
                words = ALL;
            }
            // As in the kernel: instructions behind a return are checked as if the return went on.
            _ => {}
        }
    }
    Ok(())
}

/// Kind of an instruction, as far as the check needs it.
enum Code {
    LoadData,
    LoadMemory,
    StoreMemory,
    DivideByConstant,
    ShiftByConstant,
    Jump,
    Branch,
    Return,
    Plain,
    Unknown,
}

const LOAD_DATA: u32 = BPF_LD | BPF_W | BPF_ABS;
const LOAD_LENGTH: u32 = BPF_LD | BPF_W | BPF_LEN;
const LOAD_LENGTH_X: u32 = BPF_LDX | BPF_W | BPF_LEN;
const LOAD_CONSTANT: u32 = BPF_LD | BPF_IMM;
const LOAD_CONSTANT_X: u32 = BPF_LDX | BPF_IMM;
const LOAD_MEMORY: u32 = BPF_LD | BPF_MEM;
const LOAD_MEMORY_X: u32 = BPF_LDX | BPF_MEM;
const NEGATE: u32 = BPF_ALU | BPF_NEG;
const RETURN_CONSTANT: u32 = BPF_RET | BPF_K;
const RETURN_A: u32 = BPF_RET | BPF_A;
const A_TO_X: u32 = BPF_MISC | BPF_TAX;
const X_TO_A: u32 = BPF_MISC | BPF_TXA;
const JUMP: u32 = BPF_JMP | BPF_JA;

impl Code {
    fn of(instruction: &sock_filter) -> Code {
        let code = u32::from(instruction.code);
        match code {
            LOAD_DATA => Code::LoadData,
            LOAD_MEMORY | LOAD_MEMORY_X => Code::LoadMemory,
            BPF_ST | BPF_STX => Code::StoreMemory,
            LOAD_LENGTH | LOAD_LENGTH_X | LOAD_CONSTANT | LOAD_CONSTANT_X | NEGATE | A_TO_X
            | X_TO_A => Code::Plain,
            RETURN_CONSTANT | RETURN_A => Code::Return,
            JUMP => Code::Jump,
            _ => Code::of_operation(code & !BPF_X, code & BPF_X == BPF_K),
        }
    }

    /// Kind of an arithmetic instruction or branch, with a constant or with X.
    fn of_operation(operation: u32, by_constant: bool) -> Code {
        match (operation & 0x07, operation & !0x07) {
            (BPF_ALU, BPF_DIV) if by_constant => Code::DivideByConstant,
            (BPF_ALU, BPF_LSH | BPF_RSH) if by_constant => Code::ShiftByConstant,
            (
                BPF_ALU,
                BPF_ADD | BPF_SUB | BPF_MUL | BPF_DIV | BPF_AND | BPF_OR | BPF_XOR | BPF_LSH
                | BPF_RSH,
            ) => Code::Plain,
            (BPF_JMP, BPF_JEQ | BPF_JGT | BPF_JGE | BPF_JSET) => Code::Branch,
            _ => Code::Unknown,
        }
    }
}
