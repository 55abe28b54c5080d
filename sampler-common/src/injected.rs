//! The record of an injection: lists what was put into a process, on a page of the injected image.
//!
//! `sampler-inject` writes the record, and uses it to remove what was injected. samplerd uses the
//! record to read whether the hooks are in. The record lies in the memory of the process, which may
//! write anything there. Readers trust only its form.

/// Name of the image's memory file.
pub const IMAGE: &str = "otel_memory-sampler";
/// In the line that `sampler-inject` prints: before the allocators that are not hooked.
pub const LEFT_OUT: &str = " left out: ";
/// Bytes of the record's page.
const PAGE_BYTES: usize = 4096;
/// `jmp rel32`: the byte of a hook.
pub const JUMP: u8 = 0xe9;
/// `int3`, as other tools write it.
pub const BREAKPOINT: u8 = 0xcc;
/// "SMPLREC2": the layout of [`Record::bytes`].
const MAGIC: u64 = u64::from_le_bytes(*b"SMPLREC2");
/// Words before the hooks.
const HEAD_WORDS: usize = 10;
/// Bytes of a hook: address, patched byte, the four following bytes, boundaries, whether the
/// function is called past `malloc`, prefix, name.
const HOOK_BYTES: usize = 56;
const NAME_BYTES: usize = 40;
/// Maximum number of hooks of a record.
pub const MAX_HOOKS: usize = (PAGE_BYTES - HEAD_WORDS * 8) / HOOK_BYTES;

/// A hook that is in, or can be put in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Name of the function.
    pub name: String,
    /// Address of the byte that becomes `E9`.
    pub patch: u64,
    /// The patched byte as the file has it.
    pub original: u8,
    /// The four bytes behind the patched byte, as the file has them.
    pub following: [u8; 4],
    /// Bits of those following bytes that begin an instruction, where other tools' breakpoints may
    /// be.
    pub boundaries: u8,
    /// Whether the function is of an allocator that the program calls past `malloc`, by names of
    /// its own.
    pub is_past_malloc: bool,
    /// The byte before `patch`, if it is a prefix of the hooked instruction; else 0. A breakpoint
    /// of another tool there hides the hook: the kernel then runs a copy of the file's instruction.
    pub prefix: u8,
}

/// What was injected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// First address of the image.
    pub base: u64,
    /// Size of the image in bytes.
    pub bytes: u64,
    /// Addresses of the rate in force and of the rate that was asked for.
    pub rates: [u64; 2],
    /// Areas that have to be zero when hooks are put in again: address, bytes.
    pub areas: [(u64, u64); 2],
    /// The hooks in the order in which they are put in.
    pub hooks: Vec<Hook>,
}

impl Record {
    /// The page without its magic.
    #[must_use]
    pub fn page(&self) -> Vec<u8> {
        let [(filter, filter_bytes), (table, table_bytes)] = self.areas;
        let words = [
            0,
            self.base,
            self.bytes,
            self.rates[0],
            self.rates[1],
            filter,
            filter_bytes,
            table,
            table_bytes,
            self.hooks.len() as u64,
        ];
        let mut page: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for hook in &self.hooks {
            page.extend(hook.patch.to_le_bytes());
            page.push(hook.original);
            page.extend(hook.following);
            page.push(hook.boundaries);
            page.extend([u8::from(hook.is_past_malloc), hook.prefix]);
            let mut name = [0; NAME_BYTES];
            for (place, byte) in name.iter_mut().zip(hook.name.bytes()) {
                *place = byte;
            }
            page.extend(name);
        }
        page
    }

    /// The magic at the page's beginning, which makes the record valid.
    #[must_use]
    pub fn magic() -> [u8; 8] {
        MAGIC.to_le_bytes()
    }

    /// Reads a page; `None`: the page has no valid record.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Record> {
        let word = |at: usize| {
            let bytes = page.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        if word(0)? != MAGIC {
            return None;
        }
        let count = usize::try_from(word(9)?).ok().filter(|count| *count <= MAX_HOOKS)?;
        let hooks = page.get(8 * HEAD_WORDS..)?.chunks_exact(HOOK_BYTES).take(count);
        Some(Record {
            base: word(1)?,
            bytes: word(2)?,
            rates: [word(3)?, word(4)?],
            areas: [(word(5)?, word(6)?), (word(7)?, word(8)?)],
            hooks: hooks.map(hook).collect::<Option<_>>()?,
        })
    }
}

fn hook(bytes: &[u8]) -> Option<Hook> {
    let name = bytes.get(16..)?;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(Hook {
        patch: u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
        original: *bytes.get(8)?,
        following: bytes.get(9..13)?.try_into().ok()?,
        boundaries: *bytes.get(13)?,
        is_past_malloc: *bytes.get(14)? != 0,
        prefix: *bytes.get(15)?,
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
    })
}

/// What is at the place of a hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookState {
    /// The file's bytes.
    Out,
    /// The hook.
    In,
    /// Something else.
    Foreign,
}

impl Hook {
    /// Reads the bytes at the hook's place by `read`, which gets their address, and compares them
    /// with the file's bytes and with the hook. Instructions may begin with a breakpoint of another
    /// tool. A breakpoint on the prefix counts as foreign.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn read_state<E>(
        &self,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<HookState, E> {
        let mut bytes = [self.prefix; 6];
        match self.prefix {
            0 => read(self.patch, &mut bytes[1..])?,
            _ => read(self.patch.wrapping_sub(1), &mut bytes)?,
        }
        let [before, patched @ ..] = bytes;
        Ok(if before == self.prefix { self.state(patched) } else { HookState::Foreign })
    }

    /// Compares the five bytes from `patch` on with the file's bytes and with the hook.
    #[must_use]
    pub fn state(&self, [byte, following @ ..]: [u8; 5]) -> HookState {
        let is_expected = |at: usize| {
            let may_be_breakpoint = self.boundaries & 1 << at != 0;
            following[at] == self.following[at] || may_be_breakpoint && following[at] == BREAKPOINT
        };
        match (0..4).all(is_expected) {
            true if byte == self.original => HookState::Out,
            true if byte == JUMP => HookState::In,
            _ => HookState::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOWING: [u8; 4] = [0x54, 0x55, 0x48, 0x83];

    /// A hook whose first and third following bytes begin an instruction.
    fn hook(name: &str, patch: u64) -> Hook {
        let name = name.to_owned();
        let is_past_malloc = patch.is_multiple_of(2);
        let following = FOLLOWING;
        Hook {
            name,
            patch,
            original: 0x41,
            following,
            boundaries: 0b101,
            is_past_malloc,
            prefix: 0,
        }
    }

    fn state(byte: u8, [a, b, c, d]: [u8; 4]) -> HookState {
        hook("malloc", 0).state([byte, a, b, c, d])
    }

    #[test]
    fn hook_states_are_read_from_their_bytes() {
        assert_eq!(state(0x41, FOLLOWING), HookState::Out);
        assert_eq!(state(JUMP, FOLLOWING), HookState::In);
        assert_eq!(state(BREAKPOINT, FOLLOWING), HookState::Foreign);
        assert_eq!(state(JUMP, [BREAKPOINT, 0x55, BREAKPOINT, 0x83]), HookState::In);
        assert_eq!(state(JUMP, [0x54, BREAKPOINT, 0x48, 0x83]), HookState::Foreign);
        assert_eq!(state(0x41, [0x54, 0x55, 0x48, 0x84]), HookState::Foreign);
    }

    #[test]
    fn a_breakpoint_on_the_prefix_hides_a_hook() {
        let [a, b, c, d] = FOLLOWING;
        let read_state = |prefix, before| {
            let hook = Hook { prefix, ..hook("free", 101) };
            let memory = [before, JUMP, a, b, c, d];
            let read = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(memory.get(at as usize - 100..).ok_or(())?);
                Ok::<(), ()>(())
            };
            hook.read_state(read).unwrap()
        };
        assert_eq!(read_state(0x48, 0x48), HookState::In);
        assert_eq!(read_state(0x48, BREAKPOINT), HookState::Foreign);
        assert_eq!(read_state(0, BREAKPOINT), HookState::In);
    }

    #[test]
    fn records_read_back_as_written() {
        let record = Record {
            base: 0x7f00_0000_0000,
            bytes: 0x30_0000,
            rates: [1, 2],
            areas: [(3, 4), (5, 6)],
            hooks: vec![
                hook("free", 77),
                Hook { prefix: 0x48, ..hook("free_aligned_sized", 78) },
                hook("malloc", 79),
            ],
        };
        let mut page = record.page();
        page.resize(PAGE_BYTES, 0);
        assert_eq!(Record::parse(&page), None, "without magic");
        page[..8].copy_from_slice(&Record::magic());
        assert_eq!(Record::parse(&page), Some(record));
        page[8 * 9..8 * 10].copy_from_slice(&(MAX_HOOKS as u64 + 1).to_le_bytes());
        assert_eq!(Record::parse(&page), None, "more hooks than fit");
    }
}
