//! Functions, inlined functions and lines in DWARF.
//!
//! blazesym reads debug information that is complete in one file. It takes half of the memory and
//! time of addr2line, because it skips units that are not needed. The crate addr2line reads what
//! blazesym does not: references into a shared file, split DWARF, and zstd.
//!
//! For split DWARF, addr2line opens further files itself: the `.dwp` file beside the file, or the
//! `.dwo` file of a unit.

use super::debug_file::{self, Shared};
use super::demangled::demangled;
use super::elf::{Elf, Unreadable, open};
use addr2line::Loader;
use blazesym::symbolize::source::{Elf as Dwarf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use object::read::ReadCache;
use object::{CompressionFormat, Object as _, ObjectSection as _};
use sampler_common::profile::Line;
use std::fs::File;

/// The sections with debug information. The second is compressed as it was done before
/// SHF_COMPRESSED.
const SECTIONS: [&str; 2] = [".debug_info", ".zdebug_info"];

/// Sections of files that refer to other files. `.debug_addr` is the part of split DWARF that stays
/// in the program.
const LINKS: [&str; 4] = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup", ".debug_addr"];

/// Largest decompressed size of a section, in bytes: as much as a parser has heap. A library would
/// ask for all of what a section claims, and end the process if there is not so much.
const MAX_SECTION_BYTES: u64 = 128 << 20;

/// Whether the file has debug information.
pub(super) fn is_in(elf: &Elf<'_>) -> bool {
    SECTIONS.iter().any(|name| elf.section_by_name(name).is_some())
}

/// The debug information of one file.
pub(super) enum DebugData {
    /// It is complete in the file at this path.
    Single(String),
    /// Parts of it may be in other files.
    Linked { loader: Box<Loader>, is_whole: bool },
}

impl DebugData {
    /// The debug information in the file at `path`; `None` if it has none.
    ///
    /// # Errors
    /// If the debug information is damaged, or takes more memory than there is.
    pub(super) fn open(path: &str) -> Result<Option<DebugData>, Unreadable> {
        let Ok(cache) = open(path).map(ReadCache::new) else { return Ok(None) };
        let Ok(elf) = Elf::parse(&cache) else { return Ok(None) };
        if !is_in(&elf) {
            return Ok(None);
        }
        if elf.sections().any(|section| is_too_large(&section)) {
            return Err(Unreadable);
        }
        if is_single(&elf) {
            return Ok(Some(DebugData::Single(path.to_owned())));
        }
        let shared = debug_file::shared(path, &elf);
        let loader = Loader::new_with_sup(path, shared.path());
        // A shared file that cannot be read takes only the names in it.
        let loader = loader.or_else(|_| Loader::new(path)).map_err(|_| Unreadable)?;
        let is_whole = !matches!(shared, Shared::Missing);
        Ok(Some(DebugData::Linked { loader: Box::new(loader), is_whole }))
    }

    /// Whether no part of the debug information is missing that is in a shared file.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, DebugData::Single(_) | DebugData::Linked { is_whole: true, .. })
    }

    /// The lines of each address, innermost inlined function first. A function without a name is
    /// empty. No lines if the address is in no function and no line of a source file.
    pub(super) fn frames(&self, symbolizer: &Symbolizer, addresses: &[u64]) -> Vec<Vec<Line>> {
        match self {
            DebugData::Single(path) => single_frames(symbolizer, path, addresses),
            DebugData::Linked { loader, .. } => {
                addresses.iter().map(|address| linked_frames(loader, *address)).collect()
            }
        }
    }
}

/// Whether blazesym reads the file's debug information completely.
fn is_single(elf: &Elf<'_>) -> bool {
    let is_readable = |section: object::Section<'_, '_, _>| {
        let range = section.compressed_file_range();
        range.is_ok_and(|range| range.format != CompressionFormat::Zstandard)
    };
    elf.section_by_name(SECTIONS[0]).is_some_and(is_readable)
        && LINKS.iter().all(|name| elf.section_by_name(name).is_none())
}

/// Whether a section is compressed and claims to be too large.
fn is_too_large<'file>(section: &object::Section<'file, '_, &'file ReadCache<File>>) -> bool {
    let range = section.compressed_file_range();
    range.is_ok_and(|of| {
        of.format != CompressionFormat::None && of.uncompressed_size > MAX_SECTION_BYTES
    })
}

fn single_frames(symbolizer: &Symbolizer, path: &str, addresses: &[u64]) -> Vec<Vec<Line>> {
    let source = Source::Elf(Dwarf::new(path));
    let found = symbolizer.symbolize(&source, Input::VirtOffset(addresses)).unwrap_or_default();
    let mut frames: Vec<Vec<Line>> = found
        .iter()
        .map(|found| match found {
            Symbolized::Sym(symbol) => lines_of(symbol),
            Symbolized::Unknown(_) => Vec::new(),
        })
        .collect();
    frames.resize(addresses.len(), Vec::new());
    frames
}

/// blazesym lists the outer function first, and then its inlined functions from the outermost to
/// the innermost.
fn lines_of(symbol: &Sym<'_>) -> Vec<Line> {
    let outer = line(&symbol.name, symbol.code_info.as_deref());
    let inlined = symbol.inlined.iter().map(|it| line(&it.name, it.code_info.as_ref()));
    let mut lines: Vec<Line> = std::iter::once(outer).chain(inlined).collect();
    lines.reverse();
    lines
}

fn line(function: &str, code: Option<&CodeInfo<'_>>) -> Line {
    Line {
        function: demangled(function),
        file: code.map_or_else(String::new, |code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line).unwrap_or(0),
    }
}

fn linked_frames(loader: &Loader, address: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return lines };
    while let Ok(Some(frame)) = frames.next() {
        let mut line = Line::default();
        if let Some(name) = &frame.function
            && let Ok(name) = name.raw_name()
        {
            line.function = demangled(&name);
        }
        if let Some(location) = frame.location {
            line.file = location.file.unwrap_or_default().to_owned();
            line.line = location.line.unwrap_or(0);
        }
        lines.push(line);
    }
    lines
}
