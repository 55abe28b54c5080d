//! Names in ELF files. In samplerd only the parser process reads them (`crate::parser`).
//!
//! A name comes from DWARF ([`debug_data`]), or else from a symbol table: blazesym reads symbol
//! tables, among them the one in `.gnu_debugdata`. The debug data may be in a file of its own
//! ([`debug_file`]).

use super::debug_data::DebugData;
use super::demangled::{demangled, unversioned};
use super::plt::Plt;
use super::{debug_data, debug_file};
use blazesym::symbolize::source::{Elf as Symbols, Source};
use blazesym::symbolize::{Input, Reason, Symbolized};
use object::read::ReadCache;
use object::{Object as _, ObjectSegment as _};
use rustc_hash::FxHashMap;
use sampler_common::profile::Line;
use sampler_common::units::hex;
use std::fs::{File, Metadata};
use std::io;
use std::mem;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// An ELF file that is read piece by piece.
pub(super) type Elf<'file> = object::File<'file, &'file ReadCache<File>>;

/// The debug information of a file exists, but is damaged or takes more memory than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// A reader of names that caches what it has read.
pub(crate) struct Symbolizer {
    symbols: blazesym::symbolize::Symbolizer,
    binaries: FxHashMap<String, (Version, Binary)>,
}

/// Tells the contents of a path at one time from those at another.
type Version = (u64, u64, u64, i64, i64);

/// What is known about a file besides its symbols.
#[derive(Default)]
struct Binary {
    segments: Vec<Segment>,
    plt: Plt,
    /// Whether the file has a compressed symbol table.
    has_mini_debug_info: bool,
    /// Path of the separate debug file, if the file's debug data is not in the file itself.
    debug_file: Option<String>,
    debug_data: Option<DebugData>,
}

/// Places in a file.
#[derive(Clone, Copy)]
pub(crate) enum Places<'a> {
    /// File offsets.
    Offsets(&'a [u64]),
    /// Addresses as the file states them (SVMA). A file that has debug data only has the addresses
    /// of the file that it belongs to, and no offsets.
    Addresses(&'a [u64]),
}

struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// The build id of the file at `path` in lower-case hex; `None` if it cannot be read.
pub(crate) fn build_id(path: &str) -> Option<String> {
    Some(hex(&blazesym::helper::read_elf_build_id(path).ok()??))
}

impl Symbolizer {
    /// A reader that has read nothing yet.
    pub(crate) fn new() -> Symbolizer {
        // Debug files are searched here, so that one found by build id needs no debug link.
        let symbols = blazesym::symbolize::Symbolizer::builder()
            .enable_demangling(false)
            .set_debug_dirs(Some(Vec::<PathBuf>::new()))
            .build();
        Symbolizer { symbols, binaries: FxHashMap::default() }
    }

    /// Lines of places in the file at `path`, innermost inlined function first; `None` for an
    /// unknown place. If `debug` is false, only the file's symbols are read.
    ///
    /// # Errors
    /// If `debug` is true and the file's debug information cannot be read.
    pub(crate) fn lines(
        &mut self,
        path: &str,
        places: Places<'_>,
        debug: bool,
    ) -> Result<Vec<Option<Vec<Line>>>, Unreadable> {
        let (count, input) = match places {
            Places::Offsets(offsets) => (offsets.len(), Input::FileOffset(offsets)),
            Places::Addresses(addresses) => (addresses.len(), Input::VirtOffset(addresses)),
        };
        let own = names(&self.symbols, path, input);
        if !debug {
            let own = own.unwrap_or_else(|Unreadable| vec![None; count]);
            return Ok(own.into_iter().map(|name| lines_of(Vec::new(), name)).collect());
        }
        let binary = binary(&mut self.binaries, path)?;
        if own.is_err() && binary.has_mini_debug_info {
            return Err(Unreadable);
        }
        let mut own = own.unwrap_or_default();
        let addresses = match places {
            Places::Offsets(offsets) => binary.addresses(offsets),
            Places::Addresses(addresses) => addresses.to_vec(),
        };
        let separate = binary.debug_file.as_ref().and_then(|path| {
            names(&self.symbols, path, Input::VirtOffset(addresses.as_slice())).ok()
        });
        let mut separate = separate.unwrap_or_default();
        let data = binary.debug_data.as_ref();
        let frames = data.map(|data| data.frames(&self.symbols, &addresses));
        let mut frames = frames.unwrap_or_default();
        let lines = addresses.into_iter().enumerate().map(|(at, address)| {
            let of_table = |table: &mut Vec<Option<String>>| table.get_mut(at)?.take();
            if let Some(entry) = binary.plt.name(address) {
                return lines_of(Vec::new(), Some(entry));
            }
            let symbol = of_table(&mut separate).or_else(|| of_table(&mut own));
            lines_of(frames.get_mut(at).map(mem::take).unwrap_or_default(), symbol)
        });
        Ok(lines.collect())
    }
}

/// The names of places by the file's symbol tables.
///
/// # Errors
/// If no table can be read.
fn names(
    symbols: &blazesym::symbolize::Symbolizer,
    path: &str,
    places: Input<&[u64]>,
) -> Result<Vec<Option<String>>, Unreadable> {
    let mut tables = Symbols::new(path);
    tables.debug_syms = false;
    let found = symbols.symbolize(&Source::Elf(tables), places).map_err(|_| Unreadable)?;
    if found.iter().all(|it| matches!(it, Symbolized::Unknown(Reason::IgnoredError))) {
        return Err(Unreadable);
    }
    let name = |symbol: &Symbolized<'_>| match symbol {
        Symbolized::Sym(symbol) => Some(demangled(unversioned(&symbol.name))),
        Symbolized::Unknown(_) => None,
    };
    Ok(found.iter().map(name).collect())
}

/// The lines of a place. The symbol names the outermost function if debug information does not, for
/// example if its name is in a file that is missing. Inlined functions without names are left out.
fn lines_of(mut frames: Vec<Line>, symbol: Option<String>) -> Option<Vec<Line>> {
    if frames.is_empty() {
        frames.push(Line::default());
    }
    if let (Some(outermost), Some(symbol)) = (frames.last_mut(), symbol)
        && outermost.function.is_empty()
    {
        outermost.function = symbol;
    }
    frames.retain(|line| !line.function.is_empty());
    Some(frames).filter(|frames| !frames.is_empty())
}

/// The file at a path, from the cache if it has not changed and needs no other file.
fn binary<'cache>(
    binaries: &'cache mut FxHashMap<String, (Version, Binary)>,
    path: &str,
) -> Result<&'cache Binary, Unreadable> {
    let now = open(path).and_then(|file| Ok(version(&file.metadata()?)));
    let now = now.unwrap_or_default();
    let is_right = |(version, binary): &(Version, Binary)| {
        *version == now && binary.debug_data.as_ref().is_some_and(DebugData::is_whole)
    };
    if !binaries.get(path).is_some_and(is_right) {
        let opened = Binary::open(path)?;
        binaries.insert(path.to_owned(), (now, opened));
    }
    Ok(&binaries[path].1)
}

fn version(file: &Metadata) -> Version {
    (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec())
}

pub(super) fn open(path: &str) -> io::Result<File> {
    File::open(path)
}

impl Binary {
    fn open(path: &str) -> Result<Binary, Unreadable> {
        let Ok(cache) = open(path).map(ReadCache::new) else { return Ok(Binary::default()) };
        let Ok(elf) = Elf::parse(&cache) else { return Ok(Binary::default()) };
        let mut binary = Binary { plt: Plt::of(path, &elf), ..Binary::default() };
        binary.segments = elf
            .segments()
            .map(|segment| {
                let (offset, bytes) = segment.file_range();
                Segment { address: segment.address(), offset, bytes }
            })
            .collect();
        binary.has_mini_debug_info = elf.section_by_name(".gnu_debugdata").is_some();
        if !debug_data::is_in(&elf) {
            binary.debug_file = debug_file::find(path, &elf);
        }
        let holder = binary.debug_file.as_deref().unwrap_or(path);
        binary.debug_data = DebugData::open(holder)?;
        Ok(binary)
    }

    /// The stated addresses (SVMA) of offsets; `u64::MAX` for an offset that is not loaded.
    fn addresses(&self, offsets: &[u64]) -> Vec<u64> {
        let address = |offset: &u64| {
            self.segments.iter().find_map(|segment| {
                let inside = offset.checked_sub(segment.offset)?;
                (inside < segment.bytes).then(|| segment.address.wrapping_add(inside))
            })
        };
        offsets.iter().map(|offset| address(offset).unwrap_or(u64::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str, line: u32) -> Line {
        Line { function: function.to_owned(), file: "a.c".to_owned(), line }
    }

    #[test]
    fn no_line_is_without_a_name() {
        let symbol = || Some("symbol".to_owned());
        assert_eq!(lines_of(Vec::new(), None), None);
        assert_eq!(lines_of(vec![line("", 1)], None), None);
        assert_eq!(lines_of(vec![line("", 1)], symbol()), Some(vec![line("symbol", 1)]));
        let inlined = vec![line("", 1), line("outer", 2)];
        assert_eq!(lines_of(inlined, symbol()), Some(vec![line("outer", 2)]));
        let lines = lines_of(vec![line("inner", 1), line("", 2)], symbol());
        assert_eq!(lines, Some(vec![line("inner", 1), line("symbol", 2)]));
    }
}
