//! Trap 2: entry programs that always return 0. This file determines which values a function can
//! return.
//!
//! The entry program of a session must return 1 to skip the return probe. Written with aya's
//! `#[uprobe]` macro, the program returns 0 on every path, whatever its body says. No tool
//! complains: every allocation only becomes three times as expensive.
//!
//! The check is a forward data flow over sets of constants. It never misses a value that can be
//! returned.
//! It gives up (`Any`) on values that are computed or loaded.

use std::collections::BTreeSet;
use std::fmt;

use super::instruction::{Atomic, Effect, Instruction};
use super::program::Program;

/// A set with more values becomes [`Value::Any`].
const VALUES_MAX: usize = 8;
const REGISTERS: usize = 11;

/// Possible values of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// One of these values. An empty set: the place is not reached.
    OneOf(BTreeSet<u64>),
    /// Any value.
    Any,
}

type Registers = [Value; REGISTERS];

impl Value {
    const NEVER: Self = Self::OneOf(BTreeSet::new());

    fn constant(value: u64) -> Self {
        Self::OneOf(BTreeSet::from([value]))
    }

    /// Whether the value can be `value`.
    pub(crate) fn may_be(&self, value: u64) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::Any => true,
        }
    }

    /// Adds the other's values. Returns whether the set has changed.
    fn join(&mut self, other: &Self) -> bool {
        let joined = match (&*self, other) {
            (Self::OneOf(own), Self::OneOf(more)) => {
                let all: BTreeSet<u64> = own.union(more).copied().collect();
                if all.len() > VALUES_MAX { Self::Any } else { Self::OneOf(all) }
            }
            _ => Self::Any,
        };
        let changed = joined != *self;
        *self = joined;
        changed
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneOf(values) if values.is_empty() => f.write_str("nothing"),
            Self::OneOf(values) => {
                let values: Vec<String> = values.iter().map(u64::to_string).collect();
                write!(f, "only {}", values.join(", "))
            }
            Self::Any => f.write_str("anything"),
        }
    }
}

/// Values that function `index` can return in register 0, as 64 bits.
pub(crate) fn returned(program: &Program, index: usize) -> Value {
    returned_below(program, index, &mut Vec::new())
}

/// `callers` are the functions whose values are being determined. A recursive call returns any
/// value.
fn returned_below(program: &Program, index: usize, callers: &mut Vec<usize>) -> Value {
    if callers.contains(&index) {
        return Value::Any;
    }
    callers.push(index);
    let function = &program.functions[index];
    let mut result = Value::NEVER;
    // The registers before each slot. Slots that were not reached have none.
    let mut before: Vec<Option<Registers>> = vec![None; function.instructions.len()];
    let mut work = vec![(0, [const { Value::Any }; REGISTERS])];
    while let Some((slot, registers)) = work.pop() {
        let Some(known) = before.get_mut(slot) else { continue };
        let Some(mut registers) = merge(known, registers) else { continue };
        let instruction = function.instructions[slot];
        let callee = function.calls.get(&slot).copied();
        let effect = instruction.effect();
        if let (Effect::Call, Some(callee)) = (effect, callee) {
            clobber(&mut registers);
            registers[0] = returned_below(program, callee, callers);
        } else {
            let wide = function.instructions.get(slot + 1);
            apply(instruction, wide, &mut registers);
        }
        match effect {
            Effect::Exit => {
                result.join(&registers[0]);
            }
            Effect::Jump(distance) => work.extend(target(slot, distance).map(|t| (t, registers))),
            Effect::Branch(distance) => {
                work.extend(target(slot, distance).map(|t| (t, registers.clone())));
                work.push((slot + 1, registers));
            }
            Effect::WideConstant => work.push((slot + 2, registers)),
            _ => work.push((slot + 1, registers)),
        }
    }
    callers.pop();
    result
}

/// Joins newly found registers into those of a slot. Returns the joined registers if they have
/// changed.
fn merge(known: &mut Option<Registers>, new: Registers) -> Option<Registers> {
    match known {
        None => *known = Some(new),
        Some(known) => {
            let mut changed = false;
            for (own, more) in known.iter_mut().zip(&new) {
                changed |= own.join(more);
            }
            if !changed {
                return None;
            }
        }
    }
    known.clone()
}

fn target(slot: usize, distance: i64) -> Option<usize> {
    usize::try_from(i64::try_from(slot).ok()? + 1 + distance).ok()
}

fn apply(instruction: Instruction, next: Option<&Instruction>, registers: &mut Registers) {
    let destination = usize::from(instruction.destination).min(REGISTERS - 1);
    let source = usize::from(instruction.source).min(REGISTERS - 1);
    match instruction.effect() {
        Effect::Constant(value) => registers[destination] = Value::constant(value),
        Effect::WideConstant => {
            let high = next.map_or(0, |next| next.immediate as u32);
            let value = u64::from(high) << 32 | u64::from(instruction.immediate as u32);
            let is_address = instruction.source != 0;
            registers[destination] = if is_address { Value::Any } else { Value::constant(value) };
        }
        Effect::Copy => registers[destination] = registers[source].clone(),
        Effect::Writes => registers[destination] = Value::Any,
        Effect::Atomic(Atomic::Fetch) => registers[source] = Value::Any,
        Effect::Atomic(Atomic::CompareExchange) => registers[0] = Value::Any,
        Effect::Call => clobber(registers),
        Effect::Atomic(Atomic::Plain | Atomic::Illegal)
        | Effect::Stores
        | Effect::Jump(_)
        | Effect::Branch(_)
        | Effect::Exit => {}
    }
}

/// A call leaves a result in register 0, and undefined values in registers 1 to 5.
fn clobber(registers: &mut Registers) {
    registers[..6].fill(Value::Any);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::program::Function;
    use super::*;

    fn function(name: &str, slots: &[[u8; 8]], calls: &[(usize, usize)]) -> Function {
        Function {
            name: name.into(),
            section: "uprobe".into(),
            instructions: slots.iter().copied().map(Instruction::decode).collect(),
            calls: calls.iter().copied().collect::<BTreeMap<_, _>>(),
        }
    }

    fn values(functions: Vec<Function>) -> Value {
        returned(&Program { functions, sections: Vec::new() }, 0)
    }

    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    const HELPER: [u8; 8] = [0x85, 0, 0, 0, 5, 0, 0, 0];
    const LOCAL: [u8; 8] = [0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff];

    fn set(register: u8, value: u8) -> [u8; 8] {
        [0xb7, register, 0, 0, value, 0, 0, 0]
    }

    #[test]
    fn a_wrapper_that_discards_the_result_returns_0() {
        let wrapper = function("alloc_session", &[LOCAL, set(0, 0), EXIT], &[(0, 1)]);
        let body = function("body", &[set(0, 1), EXIT], &[]);
        assert_eq!(values(vec![wrapper, body]), Value::constant(0));
    }

    #[test]
    fn a_call_returns_the_values_of_its_callee() {
        let outer = function("alloc_session", &[LOCAL, EXIT], &[(0, 1)]);
        let body = function("body", &[set(0, 1), EXIT], &[]);
        assert_eq!(values(vec![outer, body]), Value::constant(1));
    }

    #[test]
    fn both_branches_and_copies_give_return_values() {
        // r6 = 0; if r1 > 0 goto +1; r6 = 1; r0 = r6; exit
        let branch = [0x25, 1, 1, 0, 0, 0, 0, 0];
        let slots = [set(6, 0), branch, set(6, 1), [0xbf, 0x60, 0, 0, 0, 0, 0, 0], EXIT];
        let value = values(vec![function("f", &slots, &[])]);
        assert_eq!(value, Value::OneOf(BTreeSet::from([0, 1])));
    }

    #[test]
    fn unreached_code_does_not_count() {
        // r0 = 0; goto +1; r0 = 1; exit
        let slots = [set(0, 0), [0x05, 0, 1, 0, 0, 0, 0, 0], set(0, 1), EXIT];
        assert_eq!(values(vec![function("f", &slots, &[])]), Value::constant(0));
    }

    #[test]
    fn loops_end_and_helpers_return_anything() {
        // r0 = 1; if r1 > 0 goto -1; exit
        let back = [0x25, 1, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(values(vec![function("f", &[set(0, 1), back, EXIT], &[])]), Value::constant(1));
        assert_eq!(values(vec![function("f", &[HELPER, EXIT], &[])]), Value::Any);
        let recursive = function("f", &[LOCAL, EXIT], &[(0, 0)]);
        assert_eq!(values(vec![recursive]), Value::Any);
    }

    #[test]
    fn a_wide_constant_takes_two_slots() {
        let slots = [[0x18, 0, 0, 0, 2, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0, 0], EXIT];
        assert_eq!(values(vec![function("f", &slots, &[])]), Value::constant(1 << 32 | 2));
    }
}
