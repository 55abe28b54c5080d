//! Files that hold debug data of other files, as distributions install them.
//!
//! Anybody may have written the file that names another one. samplerd decides which files can be
//! opened (`crate::parser`): only those below [`DIRECTORY`]. Here a file counts only if it proves
//! that it belongs to the file that names it.
//!
//! References: "Debugging Information in Separate Files" of gdb's manual; dwz(1); DWARF 5, 7.3.6.

use super::elf::{Elf, build_id, open};
use flate2::CrcReader;
use object::{Object as _, ObjectSection as _};
use sampler_common::units::hex;
use std::io;

/// The directory in which distributions put debug files. The profiled file names the debug file and
/// may be anybody's. Therefore no other directory is allowed.
pub(crate) const DIRECTORY: &str = "/usr/lib/debug";

/// What stands before the build id of a file from a debuginfod server. No such directory exists.
pub(crate) const FETCHED: &str = "/debuginfod/";

/// Path of the debug file of the file at `path`: by build id, by the name in `.gnu_debuglink`, or
/// from a debuginfod server.
pub(super) fn find(path: &str, elf: &Elf<'_>) -> Option<String> {
    let id = elf.build_id().ok().flatten().map(hex);
    let has_id = |path: &String| build_id(path) == id;
    let by_id = id.as_deref().and_then(path_of_id).filter(has_id);
    let by_name = || by_link(path, elf, id.as_ref());
    let fetched = || id.as_deref().map(fetched_path).filter(has_id);
    by_id.or_else(by_name).or_else(fetched)
}

/// A file by the name in `.gnu_debuglink`. The build ids are compared first if both files have one,
/// because a checksum takes the time to read the file.
fn by_link(path: &str, elf: &Elf<'_>, id: Option<&String>) -> Option<String> {
    let (name, checksum) = elf.gnu_debuglink().ok().flatten()?;
    let name = file_name(name)?;
    let (directory, _) = path.rsplit_once('/')?;
    let paths = [format!("{DIRECTORY}{directory}/{name}"), format!("{DIRECTORY}/{name}")];
    let may_be_right = |path: &String| match (id, build_id(path)) {
        (Some(id), Some(found)) => *id == found,
        _ => true,
    };
    paths.into_iter().find(|path| may_be_right(path) && checksum_of(path) == Some(checksum))
}

/// A file to which dwz(1) has moved what several files share.
pub(super) enum Shared {
    /// The file needs no other.
    Unneeded,
    Missing,
    At(String),
}

impl Shared {
    fn of(path: Option<String>) -> Shared {
        path.map_or(Shared::Missing, Shared::At)
    }

    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Shared::At(path) => Some(path),
            Shared::Unneeded | Shared::Missing => None,
        }
    }
}

/// The file that the file at `path` shares with others.
pub(super) fn shared(path: &str, elf: &Elf<'_>) -> Shared {
    if let Some((name, id)) = elf.gnu_debugaltlink().ok().flatten() {
        let id = hex(id);
        let local = path_of_id(&id).into_iter().chain(paths_of_shared(path, name));
        let mut paths = local.chain([fetched_path(&id)]);
        return Shared::of(paths.find(|path| build_id(path).as_ref() == Some(&id)));
    }
    let link = Supplementary::of(elf).filter(|link| !link.is_supplementary);
    let Some(link) = link else { return Shared::Unneeded };
    Shared::of(paths_of_shared(path, &link.name).into_iter().find(|path| {
        let cache = open(path).map(object::read::ReadCache::new).ok();
        let elf = cache.as_ref().and_then(|cache| Elf::parse(cache).ok());
        elf.as_ref()
            .and_then(Supplementary::of)
            .is_some_and(|file| file.is_supplementary && file.checksum == link.checksum)
    }))
}

/// The places of a shared file. A relative name begins at the file that has it. If that file was
/// found through a link, its directory is not known: distributions use `.dwz`.
fn paths_of_shared(path: &str, name: &[u8]) -> Vec<String> {
    let Ok(name) = str::from_utf8(name) else { return Vec::new() };
    let last = name.rsplit('/').next().unwrap_or(name);
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let named = match name.starts_with('/') {
        true => name.to_owned(),
        false => format!("{directory}/{name}"),
    };
    vec![named, format!("{DIRECTORY}/.dwz/{last}")]
}

/// The contents of `.debug_sup`, DWARF 5's own link.
struct Supplementary {
    is_supplementary: bool,
    name: Vec<u8>,
    checksum: Vec<u8>,
}

impl Supplementary {
    fn of(elf: &Elf<'_>) -> Option<Supplementary> {
        let section = elf.section_by_name(".debug_sup")?;
        let (version, rest) = section.data().ok()?.split_first_chunk::<2>()?;
        let (is_supplementary, rest) = rest.split_first()?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        // The length of a checksum is below 128, so it is one byte of LEB128.
        let (length, checksum) = rest[end + 1..].split_first()?;
        let checksum = checksum.get(..usize::from(*length))?.to_vec();
        (u16::from_le_bytes(*version) == 5).then(|| Supplementary {
            is_supplementary: *is_supplementary != 0,
            name: rest[..end].to_vec(),
            checksum,
        })
    }
}

/// The path at which distributions install the debug file of a build id.
pub(crate) fn path_of_id(id: &str) -> Option<String> {
    let (first, rest) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(format!("{DIRECTORY}/.build-id/{first}/{rest}.debug"))
}

/// The path that stands for the file of a build id from a debuginfod server.
fn fetched_path(id: &str) -> String {
    format!("{FETCHED}{id}")
}

/// A file name without directories.
fn file_name(bytes: &[u8]) -> Option<&str> {
    let name = str::from_utf8(bytes).ok()?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The CRC-32 of the file at `path`, if it can be opened.
fn checksum_of(path: &str) -> Option<u32> {
    let mut file = CrcReader::new(open(path).ok()?);
    io::copy(&mut file, &mut io::sink()).ok()?;
    Some(file.crc().sum())
}
