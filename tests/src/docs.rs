//! docs/benchmarks.md: the text between the two markers of a section is replaced. The rest is
//! written by hand.

use crate::machine::Machine;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the documentation.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Puts `contents` into the section `name` of the page. A line names the machine and the options of
/// the measurement.
///
/// # Errors
/// If the page cannot be read or written, or has no section of this name.
pub fn write(name: &str, contents: &str, machine: &Machine, options: &str) -> Result<()> {
    let contents = format!("{contents}\n*{}; `{options}`*", machine.line());
    let path = directory().join("benchmarks.md");
    let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let page = replaced(&page, name, &contents);
    let page = page.with_context(|| format!("{} has no section {name}", path.display()))?;
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))
}

fn replaced(page: &str, name: &str, contents: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", contents.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_between_the_markers_is_replaced() {
        let page =
            "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\n<!-- y: end -->\n";
        let new = replaced(page, "x", "new\n\n").unwrap();
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(replaced(&new, "x", "new").unwrap(), new);
        assert_eq!(replaced(page, "z", "new"), None);
    }
}
