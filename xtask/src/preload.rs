//! `cargo xtask build-preload`: builds the library that `sampler run --preload` puts into programs.
//!
//! The library uses no standard library and no unwinder. Cargo's profiles cannot express that for
//! one package of a workspace, so a command of its own links the library. The result lies in the
//! directory of the programs.

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;

use crate::step;
use crate::workspace::Workspace;

/// Flags of rustc for the library. Nothing unwinds. There are no start-up files, which would need
/// libc.
/// Calls inside the library stay inside, and all symbols are bound at load.
/// The library cannot be unloaded: pointers into it are never taken back.
const FLAGS: &[&str] = &[
    "-Cpanic=abort",
    "-Ccodegen-units=1",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-Wl,-Bsymbolic",
    "-Clink-arg=-Wl,-z,now",
    "-Clink-arg=-Wl,-z,nodelete",
];

/// Builds the library and checks its requirements on a process. Returns its path.
///
/// # Errors
/// If the library does not build, or if the loader would have to find something for it.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut command = workspace.cargo();
    command.args(["rustc", "--release", "--package", "sampler-preload", "--features", "library"]);
    command.args(["--crate-type", "cdylib", "--"]).args(FLAGS);
    step::run("build-preload", &mut command)?;
    let path = workspace.target.join("release/libsampler_preload.so");
    check(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Prefixes of the library's own symbols. A symbol of any other name would replace the process's
/// own.
const OWN: [&str; 2] = ["__sampler_preload_", "sampler_preload_"];

/// The malloc family, which the library is meant to replace.
const FAMILY: [&str; 13] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "free",
    "cfree",
    "free_sized",
    "free_aligned_sized",
];

/// The functions that are called most. They lie in one page, each at the beginning of a cache line.
const USUAL: [&str; 4] = ["malloc", "calloc", "realloc", "free"];
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// Prefixes of C++'s operators, which the library also replaces.
const OPERATORS: [&str; 4] = ["_Znwm", "_Znam", "_ZdlPv", "_ZdaPv"];

/// Checks that the library fits into processes of any libc. It must need no library, and only
/// symbols that may be missing.
/// None of its symbols may have the name of a program's own.
fn check(path: &PathBuf) -> Result<()> {
    use object::read::elf::{FileHeader as _, Sym as _};
    use object::{Endianness, elf};
    let data = std::fs::read(path).context("read")?;
    let header = elf::FileHeader64::<Endianness>::parse(&*data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, &*data)?;
    let symbols = sections.symbols(endian, &*data, elf::SHT_DYNSYM)?;
    let mut usual = Vec::new();
    for symbol in symbols.iter().skip(1) {
        let name = String::from_utf8_lossy(symbol.name(endian, symbols.strings())?);
        if symbol.is_undefined(endian) {
            ensure!(symbol.st_bind() == elf::STB_WEAK, "needs {name} from the process");
        } else {
            let begins = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
            let is_meant = FAMILY.contains(&&*name) || begins(&OPERATORS) || begins(&OWN);
            ensure!(is_meant, "stands in front of the process's {name}");
            if USUAL.contains(&&*name) {
                usual.push(symbol.st_value(endian));
            }
        }
    }
    let is_together =
        usual.iter().all(|address| address % LINE == 0 && address / PAGE == usual[0] / PAGE);
    ensure!(usual.len() == USUAL.len() && is_together, "{USUAL:?} are not together");
    let dynamic = sections.dynamic(endian, &*data)?.map(|(entries, _)| entries);
    let values = |tag: i64| {
        let entries = dynamic.into_iter().flatten();
        let of = entries.filter(move |entry| entry.d_tag.get(endian) == tag);
        of.map(move |entry| entry.d_val.get(endian))
    };
    ensure!(values(elf::DT_NEEDED).count() == 0, "needs a library");
    let stays = values(elf::DT_FLAGS_1).any(|flags| flags & u64::from(elf::DF_1_NODELETE) != 0);
    ensure!(stays, "can be unloaded");
    Ok(())
}
