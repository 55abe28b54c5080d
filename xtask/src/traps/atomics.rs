//! Trap 1: atomic operations that lose their result.
//!
//! LLVM's BPF backend translates a *relaxed* atomic operation into the instruction without fetch,
//! even if the program uses the result.
//! The backend then takes the operand's register for the old value.
//! The instruction alone does not show this bug: using the operand again is legal, and common.
//! The source of the instruction does. The linker writes the optimized LLVM code, which shows
//! whether the result of a relaxed (`monotonic`) operation is used.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::instruction::{Atomic, Effect};
use super::program::Program;

/// One atomic operation of the LLVM code.
#[derive(Debug, PartialEq, Eq)]
struct Operation<'a> {
    function: &'a str,
    /// Line in the code, from 1.
    line: usize,
    relaxed: bool,
    used: bool,
}

/// Number of atomic operations in the object, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Operations that return the old value.
    pub(crate) fetching: usize,
    /// Operations that only change memory.
    pub(crate) plain: usize,
}

/// Checks every atomic operation of `program`, which was compiled from `code`.
///
/// # Errors
/// If an instruction is illegal for version 3, or a relaxed operation's result is used.
/// If a function has fewer fetching instructions than it has results in use.
pub(crate) fn check(program: &Program, code: &str) -> Result<Count> {
    let mut total = Count::default();
    let mut fetching = BTreeMap::new();
    for function in &program.functions {
        let count = count(&function.name, &function.instructions)?;
        fetching.insert(function.name.as_str(), count.fetching);
        total.fetching += count.fetching;
        total.plain += count.plain;
    }
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for operation in operations(code) {
        if !operation.used {
            continue;
        }
        if operation.relaxed {
            bail!(
                "{}: the result of a relaxed atomic is used (line {} of the optimized code); \
                 the backend loses it: give that operation a stronger ordering",
                operation.function,
                operation.line,
            );
        }
        *wanted.entry(operation.function).or_default() += 1;
    }
    for (function, wanted) in wanted {
        let got = fetching.get(function).copied().unwrap_or_default();
        if got < wanted {
            bail!("{function}: uses {wanted} results of atomics, but only {got} are fetched");
        }
    }
    Ok(total)
}

fn count(function: &str, instructions: &[super::instruction::Instruction]) -> Result<Count> {
    let mut count = Count::default();
    for (slot, instruction) in instructions.iter().enumerate() {
        match instruction.effect() {
            Effect::Atomic(Atomic::Fetch | Atomic::CompareExchange) => count.fetching += 1,
            Effect::Atomic(Atomic::Plain) => count.plain += 1,
            Effect::Atomic(Atomic::Illegal) => {
                bail!("{function}+{slot}: atomic operation {:#x} is illegal", instruction.immediate)
            }
            _ => {}
        }
    }
    Ok(count)
}

/// Every atomic operation in the functions of LLVM code.
fn operations(code: &str) -> Vec<Operation<'_>> {
    let mut found = Vec::new();
    let mut body: Vec<(usize, &str)> = Vec::new();
    let mut function = "";
    for (index, line) in code.lines().enumerate() {
        if line.starts_with("define ") {
            function = name(line).unwrap_or_default();
            body.clear();
        } else if line == "}" {
            found.extend(in_function(function, &body));
            body.clear();
        } else if !is_debug_record(line) {
            body.push((index + 1, line));
        }
    }
    found
}

fn in_function<'a>(function: &'a str, body: &[(usize, &'a str)]) -> Vec<Operation<'a>> {
    let mut found = Vec::new();
    for &(line, text) in body {
        let Some((result, operation)) = text.trim_start().split_once(" = ") else { continue };
        let exchange = operation.starts_with("cmpxchg");
        if !exchange && !operation.starts_with("atomicrmw") {
            continue;
        }
        let used = body.iter().any(|&(other, text)| other != line && mentions(text, result));
        // A compare-exchange has its own instruction, which always fetches.
        let relaxed = !exchange && operation.split([' ', ',']).any(|word| word == "monotonic");
        found.push(Operation { function, line, relaxed, used });
    }
    found
}

/// Whether `text` contains `value` (`%12`, `%old`) as a whole word.
fn mentions(text: &str, value: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-$".contains(c);
    text.match_indices(value).any(|(at, _)| !text[at + value.len()..].starts_with(is_part))
}

/// Whether a line is only a debug record, which does not count as a use of its value.
fn is_debug_record(line: &str) -> bool {
    line.trim_start().starts_with("#dbg_") || line.contains("@llvm.dbg.")
}

/// The name in `define … @name(…) …` or `define … @"name"(…) …`.
fn name(define: &str) -> Option<&str> {
    let (_, rest) = define.split_once('@')?;
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split('(').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::instruction::Instruction;
    use super::super::program::Function;
    use super::*;

    const USED: &str = r#"define dso_local i32 @alloc_session(ptr %0) section "uprobe" {
  %1 = atomicrmw add ptr @TOTAL, i64 %n ORDER, align 8, !dbg !4
    #dbg_value(i64 %1, !5, !DIExpression(), !6)
  %12 = icmp ugt i64 USE, 3
  ret i32 1
}
"#;

    fn program(operation: u8) -> Program {
        let slots = [[0xdb, 0x10, 0, 0, operation, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
        let function = Function {
            name: "alloc_session".into(),
            section: "uprobe".into(),
            instructions: slots.into_iter().map(Instruction::decode).collect(),
            calls: BTreeMap::new(),
        };
        Program { functions: vec![function], sections: Vec::new() }
    }

    fn code(order: &str, user: &str) -> String {
        USED.replace("ORDER", order).replace("USE", user)
    }

    #[test]
    fn a_relaxed_result_in_use_is_refused() {
        let error = check(&program(0), &code("monotonic", "%1")).unwrap_err().to_string();
        assert!(error.starts_with("alloc_session: the result of a relaxed atomic"), "{error}");
        // The result is refused even if this backend happened to fetch it.
        assert!(check(&program(1), &code("monotonic", "%1")).is_err());
    }

    #[test]
    fn an_unused_result_may_be_relaxed() {
        let count = check(&program(0), &code("monotonic", "%13")).unwrap();
        assert_eq!(count, Count { fetching: 0, plain: 1 });
    }

    #[test]
    fn a_result_in_use_must_be_fetched() {
        assert!(check(&program(1), &code("seq_cst", "%1")).is_ok());
        let error = check(&program(0), &code("seq_cst", "%1")).unwrap_err().to_string();
        assert_eq!(error, "alloc_session: uses 1 results of atomics, but only 0 are fetched");
    }

    #[test]
    fn an_illegal_operation_is_refused() {
        let error = check(&program(0x10), "").unwrap_err().to_string();
        assert_eq!(error, "alloc_session+0: atomic operation 0x10 is illegal");
    }

    #[test]
    fn only_whole_names_and_values_are_matched() {
        assert_eq!(name("define i64 @a.b(ptr %0) #1 {"), Some("a.b"));
        assert_eq!(name("define i64 @\"a b\"(ptr %0) {"), Some("a b"));
        assert!(mentions("  store i64 %1, ptr %2", "%1"));
        assert!(mentions("  ret i64 %1", "%1"));
        assert!(!mentions("  store i64 %12, ptr %1.i", "%1"));
    }
}
