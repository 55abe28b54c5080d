//! Debug files that lie neither in a module's file nor below `/usr/lib/debug`.

use std::fmt::Debug;
use std::fs::File;
use std::sync::Arc;

/// Debug files by build ids (lower-case hex). Neither question waits for more than a file of this machine.
pub trait DebugFiles: Debug + Send {
    /// The file, if it is there; whoever put it there has checked its build id.
    fn get(&self, build_id: &str) -> Option<Arc<File>>;

    /// Asks for the file, unless that was done lately. Returns whether it may be there later.
    fn request(&self, build_id: &str) -> bool;
}

/// There are none.
#[derive(Debug)]
pub struct NoDebugFiles;

impl DebugFiles for NoDebugFiles {
    fn get(&self, _: &str) -> Option<Arc<File>> {
        None
    }

    fn request(&self, _: &str) -> bool {
        false
    }
}
