//! The slots into which the loader puts the addresses of imported functions.

use super::{Elf, ElfError};
use object::LittleEndian as LE;
use object::elf::{self, Rela64};
use object::pod;
use std::collections::HashMap;

/// Most bytes of relocations that are read in one section.
const RELOCATION_BYTES: u64 = 64 << 20;

impl Elf<'_> {
    /// Slots of the functions with one of these names, with and without the prefix.
    ///
    /// # Errors
    /// If the file contradicts itself or cannot be read.
    pub fn imports(
        &self,
        prefix: &str,
        names: &[&'static str],
    ) -> Result<HashMap<u64, &'static str>, ElfError> {
        let mut imports = self.imports_behind("", names)?;
        if !prefix.is_empty() {
            imports.extend(self.imports_behind(prefix, names)?);
        }
        Ok(imports)
    }

    /// Slots of the functions with one of these names behind the prefix only.
    ///
    /// # Errors
    /// As for [`Elf::imports`].
    pub(in crate::inspect) fn imports_behind(
        &self,
        prefix: &str,
        names: &[&'static str],
    ) -> Result<HashMap<u64, &'static str>, ElfError> {
        let Some(table) = &self.dynamic_symbols else { return Ok(HashMap::new()) };
        let symbols = table.names(self.file, prefix, names)?;
        if symbols.is_empty() {
            return Ok(HashMap::new());
        }
        let mut imports = HashMap::new();
        for of in self.sections.iter().filter(|of| of.sh_type.get(LE) == elf::SHT_RELA) {
            let (offset, size) = (of.sh_offset.get(LE), of.sh_size.get(LE));
            // Millions of relocations belong to the data of a very large program. They are not
            // read, since that would take too long.
            if size > RELOCATION_BYTES {
                continue;
            }
            let bytes = self.bytes(offset, size, RELOCATION_BYTES, "relocations")?;
            let count = bytes.len() / size_of::<Rela64<LE>>();
            let (relocations, _) = pod::slice_from_bytes::<Rela64<LE>>(&bytes, count)
                .map_err(|()| ElfError::Malformed("relocations"))?;
            for relocation in relocations {
                let info = relocation.r_info.get(LE);
                let kind = info as u32;
                if (kind == elf::R_X86_64_JUMP_SLOT || kind == elf::R_X86_64_GLOB_DAT)
                    && let Some(name) = symbols.get(&((info >> 32) as u32))
                {
                    imports.insert(relocation.r_offset.get(LE), *name);
                }
            }
        }
        Ok(imports)
    }
}
