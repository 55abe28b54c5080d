//! Registers and stack memory of a sampled call, as the kernel's side copied them.

/// Registers at the sampled call's return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Return address: just behind the call in the caller.
    pub ip: u64,
    /// Stack pointer after the return.
    pub sp: u64,
    /// Frame pointer register.
    pub bp: u64,
}

/// A snapshot of stack memory.
#[derive(Clone, Copy, Debug)]
pub struct StackMemory<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// A stack slot whose return address the kernel has replaced by its trampoline, with the true one.
    pub hijacked: Option<(u64, u64)>,
}

/// Reads this far behind the snapshot's end are taken for stack that was not copied (a frame is not larger
/// than a whole default stack); farther ones for wild pointers.
const REACH_BYTES: u64 = 8 << 20;

/// Reads a snapshot and remembers whether it was too short.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    memory: StackMemory<'a>,
    /// Whether a read fell off the end.
    pub(super) ran_off: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(memory: StackMemory<'a>) -> Reader<'a> {
        Reader { memory, ran_off: false }
    }

    /// Says that the stack goes on at `sp`, which another stack than the copied one may hold (a signal
    /// handler's own).
    pub(super) fn moved_to(&mut self, sp: u64) {
        let end = self.memory.start.saturating_add(self.memory.bytes.len() as u64);
        self.ran_off |= !(self.memory.start..end).contains(&sp);
    }

    /// The eight bytes at an address of the process.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        if let Some((slot, true_ip)) = self.memory.hijacked
            && slot == address
        {
            return Some(true_ip);
        }
        let word = address
            .checked_sub(self.memory.start)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.memory.bytes.get(at..)?.first_chunk());
        if let Some(word) = word {
            return Some(u64::from_le_bytes(*word));
        }
        // A word that straddles the end is off it as well.
        let end = self.memory.start.saturating_add(self.memory.bytes.len() as u64);
        self.ran_off |= (end.saturating_sub(7)..end.saturating_add(REACH_BYTES)).contains(&address);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_the_end_is_noticed() {
        let bytes: Vec<u8> = (0..20).collect();
        let memory = StackMemory { start: 0x1000, bytes: &bytes, hijacked: Some((0x1008, 7)) };
        let mut reader = Reader::new(memory);
        assert_eq!(reader.word(0x1000), Some(u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7])));
        assert_eq!(reader.word(0x1008), Some(7));
        assert_eq!(reader.word(0xff8), None);
        assert_eq!(reader.word(u64::MAX - 3), None);
        assert!(!reader.ran_off);
        assert_eq!(reader.word(0x100d), None);
        assert!(reader.ran_off);
    }
}
