//! `cargo xtask prologues`: collects the first bytes of allocators' functions. One-byte hooks are
//! tested offline on them.
//!
//! Debian's suites have glibc 2.31 to 2.44 and the other allocators of the same years.
//! Each library of [`PACKAGES`], in every version of the suites, becomes a block of
//! `sampler-inject/corpus/prologues.txt`.
//! Versions that no suite has any more keep their block.

mod library;
mod listing;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use crate::suites::{self, Suites};
use crate::workspace::Workspace;

/// Packages with allocators, under all their past and present names.
const PACKAGES: [&str; 9] = [
    "libc6",
    "libgoogle-perftools4",
    "libgoogle-perftools4t64",
    "libjemalloc2",
    "libmimalloc2.0",
    "libmimalloc3",
    "libtbbmalloc2",
    "libtcmalloc-minimal4",
    "libtcmalloc-minimal4t64",
];

const CORPUS: &str = "sampler-inject/corpus/prologues.txt";

const HEAD: &str = "\
# Functions of allocators as Debian's packages have them. Made by `cargo xtask prologues`.
#
# library PACKAGE VERSION FILE BUILD-ID
# ADDRESS SIZE NAMES LENGTHS ENTERED BYTES
#
# ADDRESS  in the file's address space, hexadecimal
# SIZE     of the symbol in bytes
# LENGTHS  of the first instructions as objdump has them, one hexadecimal digit each
# ENTERED  offsets near the entry to which jumps lead, anywhere in the library; - for none
# BYTES    the first bytes of the function, hexadecimal
";

/// Collects the corpus.
///
/// # Errors
/// If this machine is not Debian, a package cannot be fetched, or a library cannot be read.
pub(crate) fn collect(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join(CORPUS);
    let mut blocks = blocks(&fs::read_to_string(&path).unwrap_or_default());
    let suites = Suites::open(&workspace.target.join("prologues"), &suites::ALL)?;
    for package in PACKAGES {
        for version in suites.versions(package)? {
            let folder = suites.unpack(package, &version)?;
            for file in library::allocators(&folder)? {
                let (head, functions) = library::block(package, &version, &file)
                    .with_context(|| format!("read {}", file.display()))?;
                eprintln!("{head}: {} functions", functions.len());
                blocks.insert(head, functions);
            }
        }
    }
    let mut text = String::from(HEAD);
    for (head, functions) in blocks {
        text += &format!("\n{head}\n{}\n", functions.join("\n"));
    }
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Parses the blocks of a corpus, by their first line.
fn blocks(corpus: &str) -> BTreeMap<String, Vec<String>> {
    let mut blocks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut head = None;
    for line in corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match &head {
            Some(head) if !line.starts_with("library ") => {
                blocks.entry(String::clone(head)).or_default().push(line.to_owned());
            }
            _ => head = Some(line.to_owned()),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_corpus_are_read_by_library() {
        let of = blocks(
            "# comment\n\nlibrary a 1 x 0\n10 2 free 1 - c3\n20 2 malloc 1 - c3\n\nlibrary b 1 y 0\n",
        );
        assert_eq!(of.len(), 1);
        assert_eq!(of["library a 1 x 0"], ["10 2 free 1 - c3", "20 2 malloc 1 - c3"]);
    }
}
