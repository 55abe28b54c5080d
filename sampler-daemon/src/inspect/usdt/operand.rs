//! Arguments of a USDT as assembler operands: `8@%rdi 4@-20(%rbp) -4@$5`.
//!
//! Reference: "User Space Probe Implementation" of SystemTap (sys/sdt.h): size in bytes, negative
//! if signed, `@`, operand in AT&T syntax. An operand that is not understood is refused, and the
//! message contains it.

use sampler_common::wire::{Operand, OperandKind, SITE_ARGUMENTS, Site};

/// Names of each register by size (8, 4, 2 and 1 bytes), and the register's offset in
/// `struct pt_regs` of x86-64.
const REGISTERS: [([&str; 4], u8); 16] = [
    (["r15", "r15d", "r15w", "r15b"], 0),
    (["r14", "r14d", "r14w", "r14b"], 8),
    (["r13", "r13d", "r13w", "r13b"], 16),
    (["r12", "r12d", "r12w", "r12b"], 24),
    (["rbp", "ebp", "bp", "bpl"], 32),
    (["rbx", "ebx", "bx", "bl"], 40),
    (["r11", "r11d", "r11w", "r11b"], 48),
    (["r10", "r10d", "r10w", "r10b"], 56),
    (["r9", "r9d", "r9w", "r9b"], 64),
    (["r8", "r8d", "r8w", "r8b"], 72),
    (["rax", "eax", "ax", "al"], 80),
    (["rcx", "ecx", "cx", "cl"], 88),
    (["rdx", "edx", "dx", "dl"], 96),
    (["rsi", "esi", "si", "sil"], 104),
    (["rdi", "edi", "di", "dil"], 112),
    (["rsp", "esp", "sp", "spl"], 152),
];

/// The first `count` arguments; more may follow.
///
/// # Errors
/// One line, with the operand that is not understood.
pub(super) fn site(text: &str, count: usize) -> Result<Site, String> {
    let mut site = Site::default();
    let mut words = text.split_ascii_whitespace();
    for argument in site.arguments.iter_mut().take(count.min(SITE_ARGUMENTS)) {
        let word = words.next().ok_or_else(|| format!("fewer than {count} arguments"))?;
        *argument = operand(word).ok_or_else(|| {
            let shown: String = word.chars().take(40).map(printable).collect();
            format!("argument {shown:?} is not understood")
        })?;
    }
    Ok(site)
}

fn printable(of: char) -> char {
    if of.is_ascii_graphic() { of } else { '?' }
}

fn operand(text: &str) -> Option<Operand> {
    let (size, place) = text.split_once('@')?;
    let (signed, size) = match size.strip_prefix('-') {
        Some(size) => (1, size),
        None => (0, size),
    };
    let unused_bits = match size {
        "8" => 0,
        "4" => 32,
        "2" => 48,
        "1" => 56,
        _ => return None,
    };
    let with = |kind: OperandKind| Operand {
        kind: kind as u8,
        index: Operand::NO_INDEX,
        unused_bits,
        signed,
        ..Operand::default()
    };
    if let Some(constant) = place.strip_prefix('$') {
        return Some(Operand { value: number(constant)?, ..with(OperandKind::Constant) });
    }
    if let Some(name) = place.strip_prefix('%') {
        let register = REGISTERS.iter().find(|(names, _)| names.contains(&name))?.1;
        return Some(Operand { register, ..with(OperandKind::Register) });
    }
    let (displacement, registers) = place.strip_suffix(')')?.split_once('(')?;
    let value = if displacement.is_empty() { 0 } else { number(displacement)? };
    let mut parts = registers.split(',');
    let register = address_register(parts.next()?)?;
    let index = parts.next().map(address_register);
    let index = match index {
        Some(index) => index?,
        None => Operand::NO_INDEX,
    };
    let shift = match parts.next() {
        None | Some("1") => 0,
        Some("2") => 1,
        Some("4") => 2,
        Some("8") => 3,
        Some(_) => return None,
    };
    let is_whole = parts.next().is_none();
    is_whole.then_some(Operand { value, register, index, shift, ..with(OperandKind::Memory) })
}

/// A register in an address, which must be a 64-bit one.
fn address_register(text: &str) -> Option<u8> {
    let name = text.strip_prefix('%')?;
    REGISTERS.iter().find(|(names, _)| names[0] == name).map(|(_, offset)| *offset)
}

/// A decimal or hexadecimal number with or without a minus sign. A number without one may use all
/// 64 bits.
fn number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let value = value.ok()?;
    match is_negative {
        true => 0i64.checked_sub_unsigned(value),
        false => Some(value as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Option<(u8, i64, u8, u8, u8, u8, u8)> {
        let of = operand(text)?;
        Some((of.kind, of.value, of.register, of.index, of.shift, of.unused_bits, of.signed))
    }

    #[test]
    fn operands_of_compilers_are_parsed() {
        let none = Operand::NO_INDEX;
        for (text, wanted) in [
            ("8@%rdi", (1, 0, 112, none, 0, 0, 0)),
            ("-4@%eax", (1, 0, 80, none, 0, 32, 1)),
            ("2@%r9w", (1, 0, 64, none, 0, 48, 0)),
            ("1@%bpl", (1, 0, 32, none, 0, 56, 0)),
            ("8@-24(%rbp)", (2, -24, 32, none, 0, 0, 0)),
            ("-8@(%rsp)", (2, 0, 152, none, 0, 0, 1)),
            ("8@16(%rax,%r15,8)", (2, 16, 80, 0, 3, 0, 0)),
            ("8@0x10(%rax,%rbx)", (2, 16, 80, 40, 0, 0, 0)),
            ("4@$5", (0, 5, 0, none, 0, 32, 0)),
            ("-4@$-1", (0, -1, 0, none, 0, 32, 1)),
            ("8@$18446744073709551615", (0, -1, 0, none, 0, 0, 0)),
        ] {
            assert_eq!(parse(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn unknown_operands_are_refused() {
        for text in [
            "",
            "@",
            "8@",
            "%rdi",
            "3@%rdi",
            "8f@%xmm0",
            "8@%xmm0",
            "8@%ah",
            "8@%fs:0",
            "8@sym(%rip)",
            "8@8(%rip)",
            "8@counter",
            "8@$",
            "8@$-",
            "8@$+5",
            "8@$0x",
            "8@$99999999999999999999",
            "8@8(%eax)",
            "8@8(%rax,%rbx,3)",
            "8@8(%rax,%rbx,8,1)",
            "8@8(%rax",
            "8@8%rax)",
            "--8@%rax",
            "8@(,%rax,8)",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(site("8@%rdi 8@%rsi", 3).is_err());
        assert!(site("8@%rdi \u{7f}\n8@é 8@%rdi", 3).is_err_and(|line| !line.contains('\n')));
        assert!(site("8@%rdi 8@%rsi 8@%rdx 8@nonsense", 3).is_ok(), "what we do not need");
    }

    proptest! {
        #[test]
        fn any_operand_causes_no_panic(text in "[-@%$()0-9a-fx,rdip ]{0,40}", any in ".{0,40}") {
            let _ = (site(&text, 3), site(&any, 3), operand(&text), operand(&any));
        }
    }
}
