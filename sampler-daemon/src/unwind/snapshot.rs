//! Registers and stack memory of a sampled call, as the kernel side copied them.

use super::evidence::Evidence;

/// Registers at the sampled call's return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Return address: just behind the call instruction in the caller.
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
    /// A stack slot in which the kernel has replaced the return address by its trampoline, and the
    /// true return address.
    pub hijacked: Option<(u64, u64)>,
}

/// Reads up to this far behind the snapshot's end count as stack that was not copied: a frame is
/// not larger than a whole default stack. Reads further away count as wild pointers.
const REACH_BYTES: u64 = 8 << 20;

/// The source of stack memory.
#[derive(Debug)]
enum Memory<'a> {
    Copied(StackMemory<'a>),
    /// Address and value of some words; nothing else is known.
    Words(&'a [(u64, u64)]),
}

/// Reads a stack. Records whether the snapshot was too short, and which words were used.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    memory: Memory<'a>,
    /// Whether a read went beyond the snapshot's end.
    pub(super) ran_off: bool,
    /// The words and registers that were used.
    pub(super) evidence: Evidence,
}

impl<'a> Reader<'a> {
    pub(super) fn new(memory: StackMemory<'a>) -> Reader<'a> {
        Reader { memory: Memory::Copied(memory), ran_off: false, evidence: Evidence::default() }
    }

    /// A reader of a stack of which only some words are known.
    pub(super) fn of_words(words: &'a [(u64, u64)]) -> Reader<'a> {
        Reader { memory: Memory::Words(words), ran_off: false, evidence: Evidence::default() }
    }

    /// The reader with its evidence in `evidence`, whose allocation is reused.
    pub(super) fn recording_in(mut self, mut evidence: Evidence) -> Reader<'a> {
        evidence.clear();
        self.evidence = evidence;
        self
    }

    /// Records that the stack continues at `sp`. If the snapshot does not contain `sp`, the stack
    /// ran off (a signal handler may have had its own stack).
    pub(super) fn moved_to(&mut self, sp: u64) {
        if let Memory::Copied(memory) = &self.memory {
            let end = memory.start.saturating_add(memory.bytes.len() as u64);
            self.ran_off |= !(memory.start..end).contains(&sp);
        }
    }

    /// The eight bytes at an address of the process. They decide something, so they are recorded as
    /// evidence.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        let value = self.read_unrecorded(address)?;
        self.evidence.word(address, value);
        Some(value)
    }

    /// The eight bytes at an address of the process. The caller records them once it uses them.
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
            // The process's memory has the trampoline's address in the slot.
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
        // A word that straddles the end is beyond the end too.
        let end = memory.start.saturating_add(memory.bytes.len() as u64);
        self.ran_off |= (end.saturating_sub(7)..end.saturating_add(REACH_BYTES)).contains(&address);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_reads_past_the_end_are_noted() {
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
