//! Registers and stack memory of a sampled call, as the kernel's side copied them.

use super::evidence::Evidence;

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

/// Where stack memory comes from.
#[derive(Debug)]
enum Memory<'a> {
    Copied(StackMemory<'a>),
    /// Address and value of some words: nothing else is known.
    Words(&'a [(u64, u64)]),
}

/// Reads a stack, and remembers whether it was too short and what was used of it.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    memory: Memory<'a>,
    /// Whether a read fell off the end.
    pub(super) ran_off: bool,
    /// What was used.
    pub(super) evidence: Evidence,
}

impl<'a> Reader<'a> {
    pub(super) fn new(memory: StackMemory<'a>) -> Reader<'a> {
        Reader { memory: Memory::Copied(memory), ran_off: false, evidence: Evidence::default() }
    }

    /// Of a stack of which only some words are known.
    pub(super) fn of_words(words: &'a [(u64, u64)]) -> Reader<'a> {
        Reader { memory: Memory::Words(words), ran_off: false, evidence: Evidence::default() }
    }

    /// The same, noting what is used in `evidence`, whose memory is used again.
    pub(super) fn noting_in(mut self, mut evidence: Evidence) -> Reader<'a> {
        evidence.clear();
        self.evidence = evidence;
        self
    }

    /// Says that the stack goes on at `sp`, which another stack than the copied one may hold (a signal
    /// handler's own).
    pub(super) fn moved_to(&mut self, sp: u64) {
        if let Memory::Copied(memory) = &self.memory {
            let end = memory.start.saturating_add(memory.bytes.len() as u64);
            self.ran_off |= !(memory.start..end).contains(&sp);
        }
    }

    /// The eight bytes at an address of the process, which decide something.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        let value = self.read_unrecorded(address)?;
        self.evidence.word(address, value);
        Some(value)
    }

    /// The eight bytes at an address of the process: whoever comes to use them notes it.
    pub(super) fn read_unrecorded(&mut self, address: u64) -> Option<u64> {
        let memory = match &self.memory {
            Memory::Copied(memory) => memory,
            Memory::Words(words) => {
                return words.iter().find(|(known, _)| *known == address).map(|(_, value)| *value);
            }
        };
        if let Some((slot, true_ip)) = memory.hijacked
            && slot == address
        {
            // The process has something else there.
            self.evidence.mark_incomplete();
            return Some(true_ip);
        }
        let word = address
            .checked_sub(memory.start)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| memory.bytes.get(at..)?.first_chunk());
        if let Some(word) = word {
            return Some(u64::from_le_bytes(*word));
        }
        // A word that straddles the end is off it as well.
        let end = memory.start.saturating_add(memory.bytes.len() as u64);
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
        assert_eq!(reader.evidence.words(), None, "the true address is not what is there");
    }

    #[test]
    fn an_unrecorded_read_is_no_evidence() {
        let bytes = [1; 24];
        let mut reader = Reader::new(StackMemory { start: 0x1000, bytes: &bytes, hijacked: None });
        let value = u64::from_le_bytes([1; 8]);
        assert_eq!(reader.read_unrecorded(0x1008), Some(value));
        assert_eq!(reader.word(0x1010), Some(value));
        assert_eq!(reader.evidence.words(), Some(&[(0x1010, value)][..]));
        let words = [(0x1010, value)];
        let mut again = Reader::of_words(&words);
        assert_eq!((again.word(0x1010), again.read_unrecorded(0x1008)), (Some(value), None));
    }
}
