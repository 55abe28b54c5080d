//! Files that sample their own allocations and report the samples by USDT probes of the provider
//! `otel_memory`. Our own preloaded library has one further probe.
//!
//! Reference: OpenTelemetry eBPF profiler, design document 00003. For a sampled allocation,
//! `alloc(pointer, size, weighted bytes)` fires. When its block ends, `free(pointer)` fires. The
//! notes are part of a target's file, so they are not trusted. A probe is used only if the file has
//! a `nop` for it, and a file only if all of its probes are understood.

mod note;
mod operand;

use self::note::Note;
use super::allocator::Function;
use super::code::emulated::FIVE_BYTE_NOP;
use super::elf::{Elf, ElfError};
use super::placement::Placement;
use object::LittleEndian as LE;
use object::elf::{SHT_NOTE, SectionHeader64};
use sampler_common::wire::{Role, Shape, Site};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Most bytes of notes that are read from one section, and most bytes of the sections' names.
const NOTE_BYTES: u64 = 4 << 20;
/// Most probes of a file. A file with more is not used.
const MAX_PROBES: usize = 256;
/// The provider, and the provider of our library's further probe.
const PROVIDER: &[u8] = b"otel_memory";
const OWN_PROVIDER: &[u8] = b"sampler_preload";

/// A USDT probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// [`Role::OtelAlloc`], [`Role::OtelFree`] or [`Role::LibraryEnded`].
    pub role: Role,
    /// File offset of the probe's `nop`.
    pub offset: u64,
    /// File offset of the probe's semaphore: a counter in the process. While it is 0, the program
    /// skips the code that leads to the probe.
    pub semaphore: Option<u64>,
    /// Where the probe's arguments are.
    pub site: Site,
}

/// The USDT probes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usdt {
    /// Probes for both allocations and frees, or none.
    pub probes: Vec<Probe>,
    /// Why the file's probes are not used, in one line.
    pub refused: Option<String>,
    /// Whether the file defines `malloc` and `free` for others. Then it may be a shim in front of
    /// another allocator.
    pub defines_malloc: bool,
    /// GNU build id of the file, lower-case hex.
    pub build_id: String,
}

impl Usdt {
    /// Reads the notes of `file`.
    ///
    /// # Errors
    /// If reading fails. A file that is not ELF has no probes.
    pub fn read(file: &File) -> io::Result<Usdt> {
        match Usdt::of(file) {
            Ok(usdt) => Ok(usdt),
            Err(ElfError::Read(error)) => Err(error),
            // The search for allocators reports whatever is wrong with the file.
            Err(_) => Ok(Usdt::default()),
        }
    }

    fn of(file: &File) -> Result<Usdt, ElfError> {
        let elf = Elf::read(file)?;
        let mut notes = Vec::new();
        for section in elf.sections.iter().filter(|section| section.sh_type.get(LE) == SHT_NOTE) {
            let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
            notes.push(elf.bytes(offset, size, NOTE_BYTES, "notes")?);
        }
        let probes: Vec<Note<'_>> = notes
            .iter()
            .flat_map(|section| note::probes(section))
            .filter(|note| role(note).is_some())
            .take(MAX_PROBES + 1)
            .collect();
        // The further probe of our library has no use without the contract's probes.
        if !probes.iter().any(|note| note.provider == PROVIDER) {
            return Ok(Usdt::default());
        }
        let symbols = elf.dynamic_functions(&["malloc", "free"])?;
        let defines = |name: &str| symbols.iter().any(|symbol| symbol.name == name);
        let usdt = Usdt {
            defines_malloc: defines("malloc") && defines("free"),
            build_id: elf.build_id.clone(),
            ..Usdt::default()
        };
        let base = base(&elf)?;
        Ok(match understood(&elf, &probes, base) {
            Ok(probes) => Usdt { probes, ..usdt },
            Err(why) => Usdt { refused: Some(why), ..usdt },
        })
    }

    /// The contract's probes as functions, for lists of probes.
    pub fn functions(&self) -> Vec<Function> {
        let function = |probe: &Probe| Function {
            symbols: vec![name(probe.role).to_owned()],
            role: probe.role,
            shape: Shape::DEFAULT,
            offset: probe.offset,
            placement: Placement {
                displacement: 0,
                instruction: "nop".to_owned(),
                emulated: true,
                reason: "a USDT".to_owned(),
            },
        };
        let of_contract = |probe: &&Probe| probe.role != Role::LibraryEnded;
        self.probes.iter().filter(of_contract).map(function).collect()
    }
}

/// Name of the probes of a role.
fn name(role: Role) -> &'static str {
    match role {
        Role::OtelFree => "otel_memory:free",
        Role::LibraryEnded => "sampler_preload:ended",
        _ => "otel_memory:alloc",
    }
}

fn role(note: &Note<'_>) -> Option<Role> {
    match (note.provider, note.name) {
        (PROVIDER, b"alloc") => Some(Role::OtelAlloc),
        (PROVIDER, b"free") => Some(Role::OtelFree),
        (OWN_PROVIDER, b"ended") => Some(Role::LibraryEnded),
        _ => None,
    }
}

/// All probes, sorted, or why they cannot be used.
fn understood(elf: &Elf<'_>, notes: &[Note<'_>], base: Option<u64>) -> Result<Vec<Probe>, String> {
    if notes.len() > MAX_PROBES {
        return Err(format!("more than {MAX_PROBES} probes"));
    }
    let mut probes = BTreeMap::new();
    for note in notes {
        let probe = probe(elf, note, base)?;
        // Two notes may describe the same instruction, if they agree.
        if probes.insert(probe.offset, probe).is_some_and(|before: Probe| before != probe) {
            return Err(format!("two probes at {:#x} contradict each other", probe.offset));
        }
    }
    let has = |role| probes.values().any(|probe: &Probe| probe.role == role);
    for role in [Role::OtelAlloc, Role::OtelFree] {
        if !has(role) {
            return Err(format!("{} is missing", name(role)));
        }
    }
    Ok(probes.into_values().collect())
}

fn probe(elf: &Elf<'_>, note: &Note<'_>, base: Option<u64>) -> Result<Probe, String> {
    let role = role(note).ok_or("not one of ours")?;
    // Prelinking moved the file after its notes were written.
    let moved = match (base, note.base) {
        (Some(base), linked) if linked != 0 => base.wrapping_sub(linked),
        _ => 0,
    };
    let in_file = |address: u64| {
        elf.file_offset(address.wrapping_add(moved)).map_err(|error| error.to_string())
    };
    let offset = in_file(note.address)?;
    let code = elf.bytes(offset, 5, 5, "probe").or_else(|_| elf.bytes(offset, 1, 1, "probe"));
    let code = code.map_err(|error| error.to_string())?;
    if !is_nop(&code) {
        return Err(format!("no nop at {offset:#x}, where its {} should be", name(role)));
    }
    if code.starts_with(&FIVE_BYTE_NOP) {
        return Err(format!(
            "{}: a five-byte nop, which Linux 6.18 turns into a call that ends forked children",
            name(role)
        ));
    }
    let semaphore = match note.semaphore {
        0 => None,
        address => Some(in_file(address)?),
    };
    if semaphore.is_some_and(|offset| offset % 2 != 0) {
        return Err("a semaphore at an odd address".to_owned());
    }
    let count = if role == Role::OtelAlloc { 3 } else { 1 };
    let site = operand::site(&String::from_utf8_lossy(note.arguments), count)
        .map_err(|why| format!("{}: {why}", name(role)))?;
    Ok(Probe { role, offset, semaphore, site })
}

/// Whether the code begins with a `nop` that assemblers write for a probe: one byte, two bytes, or
/// the long form of any length.
fn is_nop(code: &[u8]) -> bool {
    code.starts_with(&[0x90]) || code.starts_with(&[0x66, 0x90]) || code.starts_with(&[0x0f, 0x1f])
}

/// Address of the section `.stapsdt.base`.
fn base(elf: &Elf<'_>) -> Result<Option<u64>, ElfError> {
    let Some(names) = elf.sections.get(elf.section_names) else { return Ok(None) };
    let (offset, size) = (names.sh_offset.get(LE), names.sh_size.get(LE));
    let names = elf.bytes(offset, size, NOTE_BYTES, "section names")?;
    let is_base = |section: &&SectionHeader64<LE>| {
        let name = names.get(section.sh_name.get(LE) as usize..).unwrap_or_default();
        name.starts_with(b".stapsdt.base\0")
    };
    Ok(elf.sections.iter().find(is_base).map(|section| section.sh_addr.get(LE)))
}

/// Number of notes of probes in a section, for the fuzzer.
#[cfg(any(fuzzing, test))]
pub(super) fn count_notes(section: &[u8]) -> usize {
    note::probes(section).count()
}

#[cfg(test)]
mod tests;
