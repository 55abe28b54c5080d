//! The injected image in a process, and whether its hooks are installed.
//!
//! An image stays mapped when the sampler has been removed. No hook leads into the image then, and
//! the process runs as if the image were not there. Reference: `sampler-inject`, and the record
//! that it leaves in the process ([`sampler_common::injected`]).

use crate::inspect::mappings::{self, Backing, Mapping};
use sampler_common::injected::{Hook, HookState, Record};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Path of an image's memory file in a process.
pub const PATH: &str = "/memfd:otel_memory-sampler";
/// Functions of the malloc family whose hooks see all ends of blocks and most allocations. No image
/// is injected without these hooks. Of an allocator that the program calls past `malloc`, all hooks
/// are needed.
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
    /// Finds the image of a process with these mappings; `None` if the process has no finished
    /// image.
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
        let is_followed = |of: &Hook| of.is_past_malloc || FOLLOWED.contains(&of.name.as_str());
        let hooks = record.hooks.into_iter().filter(is_followed).collect();
        Some(Image { pid, hooks })
    }

    /// Names of the hooked functions that the program calls past `malloc`.
    pub fn past_malloc(&self) -> Vec<&str> {
        let hooks = self.hooks.iter().filter(|of| of.is_past_malloc);
        hooks.map(|of| of.name.as_str()).collect()
    }

    /// Whether all hooks of the functions that matter are installed; `None` if the memory cannot be
    /// read, most likely because the process has ended. A hook in a library that is unloaded does
    /// not matter.
    pub fn is_hooked(&self) -> Option<bool> {
        let memory = memory(self.pid)?;
        let mut is_hooked = !self.hooks.is_empty();
        for hook in &self.hooks {
            match hook.read_state(|address, bytes| memory.read_exact_at(bytes, address)) {
                Ok(HookState::In) => {}
                _ if hook.is_past_malloc && !self.is_code(hook.patch) => {}
                Ok(_) => is_hooked = false,
                Err(_) => return None,
            }
        }
        Some(is_hooked)
    }

    /// Whether a file is mapped as code at an address.
    fn is_code(&self, address: u64) -> bool {
        let mappings = mappings::read_some(self.pid).unwrap_or_default();
        let is_there = |of: &&Mapping| (of.start..of.end).contains(&address);
        let mapping = mappings.iter().find(is_there);
        mapping.is_some_and(|of| of.executable && matches!(of.backing, Backing::File(_)))
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
    fn no_image_is_found_in_an_uninjected_process() {
        let pid = std::process::id();
        assert!(Image::find(pid, &mappings::read(pid).unwrap()).is_none());
        assert_eq!(PATH, format!("/memfd:{IMAGE}"));
    }

    #[test]
    fn an_image_is_hooked_if_all_hooks_are_in() {
        let code = [JUMP, 1, 2, 3, 4, 0x41, 1, 2, 3, 4];
        let hook = |name: &str, at: usize| Hook {
            name: name.to_owned(),
            patch: code.as_ptr() as u64 + at as u64,
            original: 0x41,
            following: [1, 2, 3, 4],
            boundaries: 0,
            is_past_malloc: false,
            prefix: 0,
        };
        let image = |hooks| Image { pid: std::process::id(), hooks };
        assert_eq!(image(vec![hook("malloc", 0)]).is_hooked(), Some(true));
        assert_eq!(image(vec![hook("malloc", 0), hook("free", 5)]).is_hooked(), Some(false));
        assert_eq!(image(Vec::new()).is_hooked(), Some(false));
        let gone = Hook { patch: 0, ..hook("free", 0) };
        assert_eq!(image(vec![gone.clone()]).is_hooked(), None);
        let unloaded = Hook { is_past_malloc: true, ..gone };
        assert_eq!(image(vec![hook("malloc", 0), unloaded]).is_hooked(), Some(true));
    }
}
