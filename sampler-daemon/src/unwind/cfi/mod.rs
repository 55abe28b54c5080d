//! Call frame information of a module: how to find the caller of the function at each instruction.
//!
//! A [`Rule`] is looked up once per code address and kept. [`super::step`] does the step.
//! References: DWARF 5, section 6.4; the LSB chapter on `.eh_frame`; the x86-64 psABI, section 3.7.

pub(super) mod cache;
mod fde_table;

use super::elf::{Section, Sections};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Expression, FrameDescriptionEntry,
    LittleEndian, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _,
    X86_64,
};
use std::ops::Range;
use std::sync::Arc;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Registers, besides rsp, that a function returns unchanged. Frames can depend on them.
pub(super) const CALLEE_SAVED: [Register; 6] =
    [X86_64::RBX, X86_64::RBP, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15];

/// A DWARF expression, by its place in `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Code {
    offset: u32,
    length: u32,
}

/// CFA: rsp after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cfa {
    /// register + offset
    Offset(Register, i32),
    /// The value of the expression.
    Expression(Code),
}

/// The caller's value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Saved {
    /// The value is lost.
    Undefined,
    /// The register still has the value.
    Same,
    /// [CFA + offset]
    At(i32),
    /// CFA + offset
    Value(i32),
    /// In another register.
    In(Register),
    /// [value of the expression]
    AtExpression(Code),
    /// value of the expression
    ValueExpression(Code),
}

/// How to unwind a frame whose code is at some address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rule {
    pub(super) cfa: Cfa,
    /// The return address; undefined at the root of the stack.
    pub(super) ip: Saved,
    /// As in [`CALLEE_SAVED`].
    pub(super) registers: [Saved; CALLEE_SAVED.len()],
    /// Whether the kernel made this frame to deliver a signal. Then the caller is the interrupted
    /// code.
    pub(super) signal: bool,
}

impl Rule {
    /// Whether the rule needs the module's bytes.
    pub(super) fn has_expression(&self) -> bool {
        let is_one = |it: &Saved| matches!(it, Saved::AtExpression(_) | Saved::ValueExpression(_));
        matches!(self.cfa, Cfa::Expression(_))
            || is_one(&self.ip)
            || self.registers.iter().any(is_one)
    }
}

/// The call frame information of one module, shared by all processes that map it.
#[derive(Debug)]
pub(super) struct Cfi {
    eh_frame: Arc<[u8]>,
    index: Index,
    bases: BaseAddresses,
}

/// Finds the FDE of the function at an address.
#[derive(Debug)]
enum Index {
    /// The linker's table.
    Header(Arc<[u8]>),
    /// First address of each function and the offset of its FDE, by address.
    Own(Vec<(u64, usize)>),
}

impl Cfi {
    /// Takes a module's sections; `None` if the module has no call frame information.
    pub(super) fn new(sections: Sections) -> Option<Cfi> {
        let Section { svma, bytes } = sections.eh_frame?;
        let mut bases = BaseAddresses::default().set_eh_frame(svma.start);
        if let Some(text) = sections.text_svma {
            bases = bases.set_text(text.start);
        }
        if let Some(got) = sections.got_svma {
            bases = bases.set_got(got.start);
        }
        if let Some(header) = &sections.eh_frame_hdr {
            bases = bases.set_eh_frame_hdr(header.svma.start);
        }
        let header = sections.eh_frame_hdr.map(|header| header.bytes);
        let index = match header.filter(|header| is_searchable(header, &bases)) {
            Some(header) => Index::Header(header),
            None => Index::Own(fde_table::functions(&eh_frame(&bytes), &bases)),
        };
        Some(Cfi { eh_frame: bytes, index, bases })
    }

    /// Bytes held.
    pub(super) fn size(&self) -> usize {
        let index = match &self.index {
            Index::Header(bytes) => bytes.len(),
            Index::Own(functions) => size_of_val(&functions[..]),
        };
        self.eh_frame.len() + index
    }

    /// First address of the function at a stated address.
    pub(super) fn function(&self, svma: u64) -> Option<u64> {
        Some(self.description(svma)?.initial_address())
    }

    /// The code of the function, or of a part of a function, at a stated address.
    pub(super) fn function_code(&self, svma: u64) -> Option<Range<u64>> {
        let description = self.description(svma)?;
        let start = description.initial_address();
        Some(start..start.checked_add(description.len())?)
    }

    /// The rule at a stated address; `None` if no FDE covers the address.
    pub(super) fn rule(&self, svma: u64, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let eh_frame = eh_frame(&self.eh_frame);
        let description = self.description(svma)?;
        let row =
            description.unwind_info_for_address(&eh_frame, &self.bases, context, svma).ok()?;
        let saved = |register, default| row.register(register).map_or(default, saved);
        Some(Rule {
            cfa: match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    Cfa::Offset(*register, i32::try_from(*offset).ok()?)
                }
                CfaRule::Expression(expression) => Cfa::Expression(code(expression)?),
            },
            ip: saved(X86_64::RA, Saved::Undefined),
            registers: CALLEE_SAVED.map(|register| saved(register, Saved::Same)),
            signal: description.is_signal_trampoline(),
        })
    }

    /// The FDE of the function at a stated address.
    fn description(&self, svma: u64) -> Option<FrameDescriptionEntry<Bytes<'_>>> {
        let eh_frame = eh_frame(&self.eh_frame);
        let cie = EhFrame::cie_from_offset;
        match &self.index {
            Index::Header(bytes) => {
                let header = EhFrameHdr::new(bytes, LittleEndian).parse(&self.bases, 8).ok()?;
                let table = header.table()?;
                table.fde_for_address(&eh_frame, &self.bases, svma, cie).ok()
            }
            Index::Own(functions) => {
                let index = functions.partition_point(|it| it.0 <= svma).checked_sub(1)?;
                let offset = functions[index].1.into();
                let description = eh_frame.fde_from_offset(&self.bases, offset, cie).ok()?;
                description.contains(svma).then_some(description)
            }
        }
    }

    /// The expression at a place in `.eh_frame`.
    pub(super) fn expression(&self, code: Code) -> Option<Expression<Bytes<'_>>> {
        let (offset, length) = (code.offset as usize, code.length as usize);
        let bytes = self.eh_frame.get(offset..offset.checked_add(length)?)?;
        Some(Expression(EndianSlice::new(bytes, LittleEndian)))
    }
}

fn eh_frame(bytes: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section
}

fn saved(rule: RegisterRule<usize>) -> Saved {
    let offset = |offset: i64| i32::try_from(offset).ok();
    let known = match rule {
        RegisterRule::SameValue => Some(Saved::Same),
        RegisterRule::Offset(it) => offset(it).map(Saved::At),
        RegisterRule::ValOffset(it) => offset(it).map(Saved::Value),
        RegisterRule::Register(register) => Some(Saved::In(register)),
        RegisterRule::Expression(it) => code(&it).map(Saved::AtExpression),
        RegisterRule::ValExpression(it) => code(&it).map(Saved::ValueExpression),
        _ => None,
    };
    known.unwrap_or(Saved::Undefined)
}

fn code(expression: &UnwindExpression<usize>) -> Option<Code> {
    let offset = u32::try_from(expression.offset).ok()?;
    Some(Code { offset, length: u32::try_from(expression.length).ok()? })
}

/// Whether `.eh_frame_hdr` holds a table. A linker that finds something unknown in `.eh_frame`
/// writes a header without a table.
fn is_searchable(header: &[u8], bases: &BaseAddresses) -> bool {
    let header = EhFrameHdr::new(header, LittleEndian).parse(bases, 8);
    let table = header.as_ref().ok().and_then(|header| header.table());
    // The look-up fails if the table is empty or its encoding cannot be searched.
    table.is_some_and(|table| table.lookup(0, bases).is_ok())
}
