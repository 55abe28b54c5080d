//! One step of an unwind: from the registers in a frame to the registers in its caller. Pure;
//! memory is a [`Reader`].

use super::cfi::{CALLEE_SAVED, Cfa, Cfi, Code, Rule, Saved};
use super::snapshot::{Reader, Registers};
use gimli::{Encoding, Evaluation, EvaluationResult, Format, Location, Register, Value, X86_64};

/// Most operations of an expression. A longer one may not end.
const MAX_OPERATIONS: u32 = 1000;

/// Index of rbp in [`CALLEE_SAVED`].
const RBP: usize = 1;
const _: () = assert!(CALLEE_SAVED[RBP].0 == X86_64::RBP.0);

/// The origin of a register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// In rbp, at the call.
    Call,
    /// At this address of the stack.
    Stack(u64),
    /// In words that the evidence has already.
    Noted,
}

/// A register's value and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterValue {
    pub(super) value: u64,
    origin: Origin,
}

impl RegisterValue {
    fn noted(value: u64) -> RegisterValue {
        RegisterValue { value, origin: Origin::Noted }
    }

    fn at(address: u64, reader: &mut Reader<'_>) -> Option<RegisterValue> {
        let value = reader.read_unrecorded(address)?;
        Some(RegisterValue { value, origin: Origin::Stack(address) })
    }

    /// The value. It decides something, so it is recorded as evidence.
    fn used(self, reader: &mut Reader<'_>) -> u64 {
        match self.origin {
            Origin::Call => reader.evidence.bp(),
            Origin::Stack(address) => reader.evidence.word(address, self.value),
            Origin::Noted => {}
        }
        self.value
    }
}

/// Registers in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// Registers as in [`CALLEE_SAVED`]; none if the value is not known.
    pub(super) saved: [Option<RegisterValue>; CALLEE_SAVED.len()],
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The caller is at this return address.
    Return(u64),
    /// A signal interrupted this instruction.
    Interrupted(u64),
    /// There is no caller: the root of the stack.
    None,
}

/// The step cannot be made: memory or a register is not known, or the result is not plausible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepFailed;

impl State {
    pub(super) fn new(registers: Registers) -> State {
        let mut saved = [None; CALLEE_SAVED.len()];
        saved[RBP] = Some(RegisterValue { value: registers.bp, origin: Origin::Call });
        State { ip: registers.ip, sp: registers.sp, saved }
    }

    /// Whether rbp is zero, as at the root of the stack.
    pub(super) fn has_no_frame(&self, reader: &mut Reader<'_>) -> bool {
        self.saved[RBP].map(|it| it.used(reader)) == Some(0)
    }

    fn get(&self, register: Register, reader: &mut Reader<'_>) -> Option<u64> {
        match register {
            X86_64::RSP => Some(self.sp),
            X86_64::RA => Some(self.ip),
            _ => {
                let index = CALLEE_SAVED.iter().position(|it| *it == register)?;
                Some(self.saved[index]?.used(reader))
            }
        }
    }

    /// Steps by call frame information.
    pub(super) fn by_rule(
        &mut self,
        rule: &Rule,
        cfi: Option<&Cfi>,
        reader: &mut Reader<'_>,
    ) -> Result<Caller, StepFailed> {
        if rule.ip == Saved::Undefined {
            return Ok(Caller::None);
        }
        let cfa = match rule.cfa {
            Cfa::Offset(register, offset) => {
                let base = self.get(register, reader).ok_or(StepFailed)?;
                let cfa = base.wrapping_add_signed(i64::from(offset));
                // The return address is between sp and the CFA.
                if cfa <= self.sp {
                    return Err(StepFailed);
                }
                cfa
            }
            Cfa::Expression(code) => self.evaluate(code, None, cfi, reader).ok_or(StepFailed)?,
        };
        let ip = self
            .saved(rule.ip, RegisterValue::noted(self.ip), cfa, cfi, reader)
            .ok_or(StepFailed)?;
        let ip = ip.used(reader);
        if (cfa, ip) == (self.sp, self.ip) {
            return Err(StepFailed);
        }
        let mut saved = self.saved;
        for (index, rule) in rule.registers.iter().enumerate() {
            saved[index] = match (rule, self.saved[index]) {
                (Saved::Same, value) => value,
                (rule, value) => {
                    let own = value.unwrap_or(RegisterValue::noted(0));
                    self.saved(*rule, own, cfa, cfi, reader)
                }
            };
        }
        *self = State { ip, sp: cfa, saved };
        Ok(match ip {
            0 => Caller::None,
            _ if rule.signal => {
                reader.evidence.mark_incomplete();
                Caller::Interrupted(ip)
            }
            _ => Caller::Return(ip),
        })
    }

    /// Steps through a function that keeps its frame's address in rbp: CFA = rbp + 16, return
    /// address = [CFA − 8], rbp = [CFA − 16].
    pub(super) fn by_frame_pointer(
        &mut self,
        reader: &mut Reader<'_>,
    ) -> Result<Caller, StepFailed> {
        let frame = self.saved[RBP].ok_or(StepFailed)?.used(reader);
        let cfa = frame.checked_add(16).filter(|cfa| *cfa > self.sp).ok_or(StepFailed)?;
        let bp = RegisterValue::at(frame, reader).ok_or(StepFailed)?;
        let ip = reader.word(frame + 8).ok_or(StepFailed)?;
        // The other registers that the function saved are not known.
        let mut saved = [None; CALLEE_SAVED.len()];
        saved[RBP] = Some(bp);
        *self = State { ip, sp: cfa, saved };
        guessed(ip)
    }

    /// Steps through a function that has not changed its stack: the return address is on top of the
    /// stack.
    pub(super) fn by_return(&mut self, reader: &mut Reader<'_>) -> Result<Caller, StepFailed> {
        let ip = reader.word(self.sp).ok_or(StepFailed)?;
        (self.ip, self.sp) = (ip, self.sp.wrapping_add(8));
        guessed(ip)
    }

    /// Steps from the kernel's signal return code to the interrupted code. rsp points to a
    /// `ucontext_t` (offsets of its `mcontext_t` as in the kernel's `struct sigcontext_64`).
    pub(super) fn by_signal(&mut self, reader: &mut Reader<'_>) -> Result<Caller, StepFailed> {
        const OFFSETS: [u64; CALLEE_SAVED.len()] = [128, 120, 72, 80, 88, 96];
        let context = self.sp;
        let mut word = |offset| reader.word(context.wrapping_add(offset)).ok_or(StepFailed);
        let (sp, ip) = (word(160)?, word(168)?);
        let mut saved = [None; CALLEE_SAVED.len()];
        for (value, offset) in saved.iter_mut().zip(OFFSETS) {
            *value = Some(RegisterValue::noted(word(offset)?));
        }
        *self = State { ip, sp, saved };
        // The words that the kernel has put there are not compared later.
        reader.evidence.mark_incomplete();
        reader.moved_to(sp);
        Ok(Caller::Interrupted(ip))
    }

    /// The caller's value of a register whose value here is `own`.
    fn saved(
        &self,
        rule: Saved,
        own: RegisterValue,
        cfa: u64,
        cfi: Option<&Cfi>,
        reader: &mut Reader<'_>,
    ) -> Option<RegisterValue> {
        match rule {
            Saved::Undefined => None,
            Saved::Same => Some(own),
            Saved::At(offset) => {
                RegisterValue::at(cfa.wrapping_add_signed(i64::from(offset)), reader)
            }
            Saved::Value(offset) => {
                Some(RegisterValue::noted(cfa.wrapping_add_signed(i64::from(offset))))
            }
            Saved::In(register) => self.get(register, reader).map(RegisterValue::noted),
            Saved::AtExpression(code) => {
                let address = self.evaluate(code, Some(cfa), cfi, reader)?;
                RegisterValue::at(address, reader)
            }
            Saved::ValueExpression(code) => {
                self.evaluate(code, Some(cfa), cfi, reader).map(RegisterValue::noted)
            }
        }
    }

    /// Evaluates a DWARF expression. `initial` is on the expression's stack at its beginning.
    fn evaluate(
        &self,
        code: Code,
        initial: Option<u64>,
        cfi: Option<&Cfi>,
        reader: &mut Reader<'_>,
    ) -> Option<u64> {
        let encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };
        let mut evaluation = Evaluation::new(cfi?.expression(code)?.0, encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.get(register, reader)?);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = Value::Generic(reader.word(address)?);
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result().last()?.location {
            Location::Address { address } => Some(address),
            Location::Value { value: Value::Generic(value) } => Some(value),
            _ => None,
        }
    }
}

/// The caller at a guessed return address. A zero is no root of a stack here, since much of memory
/// is zero.
fn guessed(ip: u64) -> Result<Caller, StepFailed> {
    if ip == 0 { Err(StepFailed) } else { Ok(Caller::Return(ip)) }
}

#[cfg(test)]
mod tests;
