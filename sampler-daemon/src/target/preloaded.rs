//! The settings of our own preloaded library in a process: at which interval it samples, and another one.
//!
//! Reference: `sampler-preload/src/settings.rs`. The library exports the block `sampler_preload_settings`; it begins with a word that says what
//! it is, and the rate is the next one. It is the target's memory: written only where that word is found, and what is read is a rate
//! or nothing.

use super::mappings::{self, Backing};
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};
use object::{Endianness, ReadCache, ReadRef};
use sampler_common::sampling::Rate;
use std::fs::{File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::FileExt as _;

/// The block's symbol.
const SYMBOL: &[u8] = b"sampler_preload_settings";
/// Its first word.
const MAGIC: u64 = u64::from_le_bytes(*b"SMPLPRE1");
/// Its size, bytes.
const BYTES: u64 = 64;

/// Where a library has the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preloaded {
    /// File offset.
    offset: u64,
}

impl Preloaded {
    /// Looks for it in a file; `None` in one that is not our library.
    pub fn find(file: &File) -> Option<Preloaded> {
        let data = ReadCache::new(file.try_clone().ok()?);
        let offset = settings_offset(&data).ok()??;
        let bytes = data.read_bytes_at(offset, BYTES).ok()?;
        let word = u64::from_le_bytes(*bytes.first_chunk()?);
        (word == MAGIC).then_some(Preloaded { offset })
    }

    /// The rate in process `pid`, which has the library by `path`; `None` while it has not allocated yet.
    ///
    /// # Errors
    /// If the process is gone, or its block is not what it should be.
    pub fn rate(&self, pid: u32, path: &str) -> io::Result<Option<Rate>> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let at = self.address(pid, path, &memory)?;
        let raw = word(&memory, at + 8)?;
        Ok((raw != 0).then(|| Rate::from_raw(raw)))
    }

    /// Puts another rate into force, from some next call on.
    ///
    /// # Errors
    /// As [`Preloaded::rate`].
    pub fn set_rate(&self, pid: u32, path: &str, rate: Rate) -> io::Result<()> {
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let at = self.address(pid, path, &memory)?;
        memory.write_all_at(&rate.raw().to_le_bytes(), at + 8)
    }

    fn address(&self, pid: u32, path: &str, memory: &File) -> io::Result<u64> {
        let mappings = mappings::read(pid)?;
        let holds = |mapping: &&mappings::Mapping| {
            let end = mapping.offset + (mapping.end - mapping.start);
            // The page may be mapped twice: where it lies between code and data. The data come last.
            mapping.backing == Backing::File(path.to_owned())
                && (mapping.offset..end).contains(&self.offset)
        };
        let last = mappings.iter().rfind(holds);
        let at = last.map(|mapping| mapping.start + (self.offset - mapping.offset));
        let missing = || Error::new(ErrorKind::NotFound, format!("{path} is not mapped"));
        let at = at.ok_or_else(missing)?;
        match word(memory, at)? {
            MAGIC => Ok(at),
            _ => Err(Error::new(ErrorKind::InvalidData, format!("{path}: no settings at {at:#x}"))),
        }
    }
}

fn word(memory: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

/// File offset of the symbol.
fn settings_offset<'data>(data: impl ReadRef<'data>) -> object::Result<Option<u64>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let symbols = header.sections(endian, data)?.symbols(endian, data, SHT_DYNSYM)?;
    let is_it = |symbol: &&object::elf::Sym64<Endianness>| {
        symbol.name(endian, symbols.strings()) == Ok(SYMBOL) && !symbol.is_undefined(endian)
    };
    let Some(symbol) = symbols.iter().find(is_it) else { return Ok(None) };
    let address = symbol.st_value(endian);
    let segments = header.program_headers(endian, data)?;
    let holds = |segment: &&object::elf::ProgramHeader64<Endianness>| {
        let start = segment.p_vaddr(endian);
        segment.p_type(endian) == PT_LOAD
            && (start..start.saturating_add(segment.p_filesz(endian))).contains(&address)
    };
    let segment = segments.iter().find(holds);
    Ok(segment.map(|of| address - of.p_vaddr(endian) + of.p_offset(endian)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_have_none() {
        assert_eq!(Preloaded::find(&File::open("/proc/self/exe").unwrap()), None);
        assert_eq!(Preloaded::find(&File::open("/etc/passwd").unwrap()), None);
        let nowhere = Preloaded { offset: 0 };
        let program = std::env::current_exe().unwrap().display().to_string();
        let pid = std::process::id();
        assert_eq!(nowhere.rate(pid, &program).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(nowhere.rate(pid, "/etc/passwd").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
