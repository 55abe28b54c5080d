//! The injected image in a process, and whether its hooks are in.
//!
//! An image stays mapped when the sampler has been taken out: then nothing leads into it any more, and the process is as if it were not there. Reference:
//! `sampler-inject`, and the record that it leaves in the process ([`sampler_common::injected`]).

use super::mappings::{Backing, Mapping};
use sampler_common::injected::{Hook, HookState, Record};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Path of an image's memory file in a process.
pub const PATH: &str = "/memfd:otel_memory-sampler";
/// Functions whose hooks tell all ends and most allocations; no image is put in without them.
const FOLLOWED: [&str; 3] = ["malloc", "realloc", "free"];
/// Bytes of the record's page.
const PAGE_BYTES: usize = 4096;

/// An image in a process.
#[derive(Debug)]
pub struct Image {
    pid: u32,
    hooks: Vec<Hook>,
}

impl Image {
    /// Finds the one of a process that has these mappings; `None`: there is none, or none that is finished.
    pub fn find(pid: u32, mappings: &[Mapping]) -> Option<Image> {
        let is_of_image =
            |of: &&Mapping| matches!(&of.backing, Backing::File(path) if path == PATH);
        let mut starts = mappings.iter().filter(is_of_image).map(|of| of.start).peekable();
        starts.peek()?;
        let memory = memory(pid)?;
        let record = starts.find_map(|start| {
            let mut page = [0; PAGE_BYTES];
            memory.read_exact_at(&mut page, start).ok()?;
            Record::parse(&page)
        })?;
        let is_followed = |of: &Hook| FOLLOWED.contains(&of.name.as_str());
        let hooks = record.hooks.into_iter().filter(is_followed).collect();
        Some(Image { pid, hooks })
    }

    /// Whether all of its hooks are in that say what is held; `None`: it cannot be read, so that the process has most likely ended.
    pub fn is_hooked(&self) -> Option<bool> {
        let memory = memory(self.pid)?;
        let mut is_hooked = !self.hooks.is_empty();
        for hook in &self.hooks {
            let mut bytes = [0; 5];
            memory.read_exact_at(&mut bytes, hook.patch).ok()?;
            is_hooked &= hook.state(bytes) == HookState::In;
        }
        Some(is_hooked)
    }
}

fn memory(pid: u32) -> Option<File> {
    File::open(format!("/proc/{pid}/mem")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::mappings;
    use sampler_common::injected::{IMAGE, JUMP};

    #[test]
    fn a_process_without_an_image_has_none() {
        let pid = std::process::id();
        assert!(Image::find(pid, &mappings::read(pid).unwrap()).is_none());
        assert_eq!(PATH, format!("/memfd:{IMAGE}"));
    }

    #[test]
    fn hooks_are_in_or_out() {
        let code = [JUMP, 1, 2, 3, 4, 0x41, 1, 2, 3, 4];
        let hook = |name: &str, at: usize| Hook {
            name: name.to_owned(),
            patch: code.as_ptr() as u64 + at as u64,
            original: 0x41,
            following: [1, 2, 3, 4],
            boundaries: 0,
        };
        let image = |hooks| Image { pid: std::process::id(), hooks };
        assert_eq!(image(vec![hook("malloc", 0)]).is_hooked(), Some(true));
        assert_eq!(image(vec![hook("malloc", 0), hook("free", 5)]).is_hooked(), Some(false));
        assert_eq!(image(Vec::new()).is_hooked(), Some(false));
        let gone = Hook { patch: 0, ..hook("free", 0) };
        assert_eq!(image(vec![gone]).is_hooked(), None);
    }
}
