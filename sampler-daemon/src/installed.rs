//! Files that are installed with the programs.

use std::path::{Path, PathBuf};

/// Places of such files, relative to the directory of the running program: next to it, or in
/// library directories.
const PLACES: [&str; 3] = ["", "../lib", "../lib/sampler"];

/// The file of this name; `None` if it is in none of the places.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let directory = own.parent().map(Path::to_owned)?;
    let candidates = PLACES.iter().map(|place| directory.join(place).join(name));
    candidates.filter_map(|path| path.canonicalize().ok()).find(|path| path.is_file())
}
