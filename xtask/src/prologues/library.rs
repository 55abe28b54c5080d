//! The malloc family of one library: addresses, sizes and bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol};

use super::listing::Listing;

/// The malloc family of C, then the operators of C++.
const NAMES: [&str; 29] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "_Znwm",
    "_ZnwmRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_Znam",
    "_ZnamRKSt9nothrow_t",
    "_ZnamSt11align_val_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdlPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPv",
    "_ZdaPvm",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdaPvSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
];
/// Functions of jemalloc that programs call besides the malloc family.
const JEMALLOC: [&str; 4] = ["mallocx", "rallocx", "dallocx", "sdallocx"];
/// Beginning of the names of mimalloc's own functions, and what the names of functions that give
/// out, move or free blocks contain.
const MIMALLOC: (&str, [&str; 3]) = ("mi_", ["alloc", "free", "memalign"]);
/// Parts of the names of libraries to skip: the loader, debugging tools, and variants of an
/// allocator.
const FOREIGN: [&str; 4] = ["debug", "ld-", "memusage", "profiler"];
/// Maximum number of bytes that are kept of a function.
const MAX_BYTES: u64 = 512;
/// Minimum number of bytes that are kept: the bytes behind a short function may be part of a jump's
/// distance.
const MIN_BYTES: u64 = 48;

/// Lists the allocators below `folder`.
pub(super) fn allocators(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if is_allocator(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_allocator(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !FOREIGN.iter().any(|part| name.contains(part))
        && families(&file).values().any(|family| family.names.iter().any(|name| name == "malloc"))
}

/// The functions at one address: their size and names.
struct Family {
    size: u64,
    /// Names of the malloc family come first.
    names: Vec<String>,
}

fn is_collected(name: &str) -> bool {
    let (prefix, parts) = MIMALLOC;
    let is_mimalloc = name.starts_with(prefix) && parts.iter().any(|part| name.contains(part));
    NAMES.contains(&name) || JEMALLOC.contains(&name) || is_mimalloc
}

fn families(file: &object::File) -> BTreeMap<u64, Family> {
    let mut families: BTreeMap<u64, Family> = BTreeMap::new();
    for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let Some(name) = symbol.name().ok().filter(|name| is_collected(name)) else { continue };
        let family = families
            .entry(symbol.address())
            .or_insert(Family { size: symbol.size(), names: Vec::new() });
        if !family.names.iter().any(|other| other == name) {
            family.names.push(name.to_owned());
        }
    }
    // Stable: names of the same kind keep their order.
    let is_other = |name: &String| !NAMES.contains(&name.as_str());
    families.values_mut().for_each(|family| family.names.sort_by_key(is_other));
    families
}

/// Builds the block of a library: its first line, and a line for each function.
pub(super) fn block(package: &str, version: &str, path: &Path) -> Result<(String, Vec<String>)> {
    let bytes = fs::read(path).context("read the library")?;
    let file = object::File::parse(&*bytes).context("parse the library")?;
    let listing = Listing::of(path)?;
    let build_id = file.build_id()?.map(hex).context("find its build id")?;
    let name = path.file_name().unwrap_or_default().display();
    let head = format!("library {package} {version} {name} {build_id}");
    let functions = families(&file)
        .iter()
        .map(|(address, family)| line(&file, &listing, *address, family))
        .collect::<Result<_>>()?;
    Ok((head, functions))
}

fn line(file: &object::File, listing: &Listing, address: u64, family: &Family) -> Result<String> {
    let bytes = code(file, address, family.size)?;
    let entered = listing.entered(address);
    let entered = match entered.is_empty() {
        true => String::from("-"),
        false => entered.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
    };
    let lengths = listing.lengths(address);
    let names = family.names.join(",");
    Ok(format!("{address:x} {} {names} {lengths} {entered} {}", family.size, hex(&bytes)))
}

/// The function's bytes, at least [`MIN_BYTES`] and at most [`MAX_BYTES`] if the section has as
/// many.
fn code(file: &object::File, address: u64, size: u64) -> Result<Vec<u8>> {
    let wanted = size.clamp(MIN_BYTES, MAX_BYTES);
    for section in file.sections() {
        let end = section.address() + section.size();
        if (section.address()..end).contains(&address) {
            let length = wanted.min(end - address);
            let data = section.data_range(address, length)?.context("read the function")?;
            return Ok(data.to_vec());
        }
    }
    anyhow::bail!("no section has the function at {address:x}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
