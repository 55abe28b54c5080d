//! Build ids of files that anybody may have written.

use super::child::Child;
use super::files::Others;
use super::wire::{Request, Wanted};
use super::{FILE_TIME, NoDebugFiles, UNNAMED_FILE};
use std::fs::File;
use std::path::Path;

/// The build id of `file` in lower-case hex; `None` if it is no ELF file with a build id. A new
/// parser process reads the file. `program` is samplerd.
///
/// # Errors
/// If the file cannot be read: the reason.
pub(crate) fn build_id(program: &Path, file: &File) -> Result<Option<String>, String> {
    let failed = |what: &dyn std::fmt::Display| format!("the process that reads names {what}");
    let mut child = Child::start(program).map_err(|failure| failed(&failure))?;
    let request = Request {
        wanted: Wanted::BuildId,
        debug: false,
        path: UNNAMED_FILE.to_owned(),
        places: Vec::new(),
    };
    let mut others = Others::of(&NoDebugFiles, "", Vec::new());
    let answers = child.ask(&request, file, &mut others, FILE_TIME);
    let answers = answers.map_err(|failure| failed(&failure))?;
    Ok(answers.into_iter().flatten().flatten().next().map(|line| line.function))
}
