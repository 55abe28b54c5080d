//! Debug files that are not in the module's own file or below `/usr/lib/debug`.

use std::fmt::Debug;
use std::fs::File;
use std::sync::Arc;

/// Debug files by build id (lower-case hex). Neither function waits longer than reading a local
/// file takes.
pub trait DebugFiles: Debug + Send {
    /// The debug file, if it is there. The implementation has checked the file's build id.
    fn get(&self, build_id: &str) -> Option<Arc<File>>;

    /// Requests the debug file, unless it was requested recently. Returns whether the file may be
    /// there later.
    fn request(&self, build_id: &str) -> bool;
}

/// `None` is a source without any debug files.
impl<T: DebugFiles> DebugFiles for Option<T> {
    fn get(&self, build_id: &str) -> Option<Arc<File>> {
        self.as_ref()?.get(build_id)
    }

    fn request(&self, build_id: &str) -> bool {
        self.as_ref().is_some_and(|files| files.request(build_id))
    }
}

/// A source without any debug files.
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
