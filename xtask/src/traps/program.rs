//! The functions of an eBPF object: their instructions and their calls.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionFlags, SymbolKind, elf,
};

use super::instruction::{Instruction, SLOT_BYTES};

/// Value of a call's source field: the callee is a function of this object.
const PSEUDO_CALL: u8 = 1;

/// One function.
pub(crate) struct Function {
    /// Name of the function's symbol.
    pub(crate) name: String,
    /// Section of the function. It determines the kind of program.
    pub(crate) section: String,
    /// All slots of the function.
    pub(crate) instructions: Vec<Instruction>,
    /// Slot of a call → index of the called function in [`Program::functions`].
    pub(crate) calls: BTreeMap<usize, usize>,
}

/// All functions of an object.
pub(crate) struct Program {
    /// The functions in no particular order. Calls refer to them by index.
    pub(crate) functions: Vec<Function>,
    /// The names of all sections.
    pub(crate) sections: Vec<String>,
}

/// Place of code: index of the section, and byte in the section.
type Place = (usize, u64);

impl Program {
    /// Reads an object.
    ///
    /// # Errors
    /// If the data is not a relocatable object, contains no code, or a call leads to no function.
    pub(crate) fn parse(data: &[u8]) -> Result<Self> {
        let file = object::File::parse(data).context("read the object")?;
        let sections = file.sections().map(|s| Ok(s.name()?.to_owned())).collect::<Result<_>>()?;
        let mut functions = Vec::new();
        let mut starts = BTreeMap::new();
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            let Some(section) = symbol.section_index() else { continue };
            let code = file.section_by_index(section)?;
            let name = symbol.name()?.to_owned();
            let first = usize::try_from(symbol.address())?;
            let size = usize::try_from(symbol.size())?;
            let bytes = code
                .data()?
                .get(first..first + size)
                .with_context(|| format!("function {name} reaches beyond its section"))?;
            let (slots, rest) = bytes.as_chunks::<SLOT_BYTES>();
            if !rest.is_empty() || slots.is_empty() {
                bail!("function {name} has {size} bytes, not a number of instructions");
            }
            starts.insert((section.0, symbol.address()), functions.len());
            functions.push(Function {
                name,
                section: code.name()?.to_owned(),
                instructions: slots.iter().copied().map(Instruction::decode).collect(),
                calls: BTreeMap::new(),
            });
        }
        if functions.is_empty() {
            bail!("the object holds no function (is it empty?)");
        }
        resolve_calls(&file, &mut functions, &starts)?;
        Ok(Self { functions, sections })
    }
}

fn resolve_calls(
    file: &object::File<'_>,
    functions: &mut [Function],
    starts: &BTreeMap<Place, usize>,
) -> Result<()> {
    let relocated = relocations(file)?;
    for (&(section, start), &index) in starts {
        for slot in 0..functions[index].instructions.len() {
            let call = functions[index].instructions[slot];
            if call.code != 0x85 || call.source != PSEUDO_CALL {
                continue;
            }
            let place = (section, start + (slot * SLOT_BYTES) as u64);
            // The call's immediate counts slots after the call. A relocation's symbol stands for
            // the section's first slot, so −1 there means slot 0.
            let (base, from) = match relocated.get(&place) {
                Some(&(section, address)) => (section, address as i64),
                None => (section, place.1 as i64 + SLOT_BYTES as i64),
            };
            let distance = i64::from(call.immediate) + i64::from(relocated.contains_key(&place));
            let target = from + distance * SLOT_BYTES as i64;
            let callee = u64::try_from(target).ok().and_then(|t| starts.get(&(base, t)));
            let Some(&callee) = callee else {
                bail!("{}+{slot}: the call leads to no function", functions[index].name);
            };
            functions[index].calls.insert(slot, callee);
        }
    }
    Ok(())
}

/// Relocations in code: their place → place of their symbol.
fn relocations(file: &object::File<'_>) -> Result<BTreeMap<Place, Place>> {
    let mut found = BTreeMap::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(elf::SHF_EXECINSTR) == 0 {
            continue;
        }
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let symbol = file.symbol_by_index(symbol)?;
            if let Some(target) = symbol.section_index() {
                found.insert((section.index().0, offset), (target.0, symbol.address()));
            }
        }
    }
    Ok(found)
}
