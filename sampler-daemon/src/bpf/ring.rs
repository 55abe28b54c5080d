//! Reads the ring buffer and checks its records before the daemon uses them.

use super::maps::shared::{ProcessSlots, RingPositions};
use aya::maps::{MapData, RingBuf};
use sampler_common::wire::{
    AllocationRecord, EventRecord, FreeRecord, MAX_PYTHON_FRAMES, MappingRecord, PythonFrame,
    PythonRecord, RecordKind, Space,
};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};

/// The Python frames of a sample.
#[derive(Debug)]
pub struct PythonStack {
    /// Address space.
    pub space: Space,
    /// Number of the sample.
    pub sample: u64,
    /// The value of [`PythonRecord::flags`].
    pub flags: u32,
    /// The frames, newest first.
    pub frames: Vec<PythonFrame>,
}

/// A checked record.
#[derive(Debug)]
pub enum Record<'a> {
    /// A sampled allocation with a stack snapshot that starts at its stack pointer.
    Snapshot(AllocationRecord, &'a [u8]),
    /// A sampled allocation with return addresses, leaf first, 8 bytes each.
    Frames(AllocationRecord, &'a [u8]),
    /// A sampled allocation with the id of a cached stack.
    Known(AllocationRecord, u64),
    /// The free of a sampled block.
    Free(FreeRecord),
    /// A new program image.
    Exec(EventRecord),
    /// The live set is nearly full.
    LiveHigh(EventRecord),
    /// A new process has taken a slot.
    Appeared(EventRecord),
    /// The first thread of a process is exiting.
    Leaving(EventRecord),
    /// A new program image of a process that has no slot yet.
    ExpectedExec(EventRecord),
    /// The state of a process's gate has changed.
    Gate(EventRecord),
    /// A call that changes mappings, with a stack snapshot that starts at its stack pointer (empty:
    /// no stack was copied).
    Mapping(MappingRecord, &'a [u8]),
    /// The Python frames of a sampled allocation whose record follows.
    Python(PythonStack),
    /// The bytes are no valid record.
    Malformed,
}

impl Record<'_> {
    /// The address space that the record belongs to.
    pub fn space(&self) -> Option<Space> {
        match self {
            Record::Snapshot(record, _) | Record::Frames(record, _) | Record::Known(record, _) => {
                Some(record.space)
            }
            Record::Free(record) => Some(record.space),
            Record::Exec(record)
            | Record::LiveHigh(record)
            | Record::Appeared(record)
            | Record::Gate(record)
            | Record::Leaving(record) => Some(record.space),
            Record::Mapping(record, _) => Some(record.space),
            Record::Python(stack) => Some(stack.space),
            Record::ExpectedExec(_) | Record::Malformed => None,
        }
    }

    /// Time of a sampled allocation (`CLOCK_MONOTONIC`); `None` for other records.
    pub fn sampled_ns(&self) -> Option<u64> {
        match self {
            Record::Snapshot(record, _) | Record::Frames(record, _) | Record::Known(record, _) => {
                Some(record.time_ns)
            }
            _ => None,
        }
    }
}

/// The ring buffer.
pub struct Ring {
    buffer: RingBuf<MapData>,
    positions: RingPositions,
    slots: ProcessSlots,
}

impl Ring {
    pub(super) fn new(
        buffer: RingBuf<MapData>,
        positions: RingPositions,
        slots: ProcessSlots,
    ) -> Ring {
        Ring { buffer, positions, slots }
    }

    /// Passes up to `most` records to `each`, none of those reserved behind `until`. Returns how
    /// many there were.
    pub fn read(&mut self, most: usize, until: u64, mut each: impl FnMut(Record<'_>)) -> usize {
        for count in 0..most {
            if self.has_read(until) {
                return count;
            }
            let Some(item) = self.buffer.next() else { return count };
            let record = parse(&item);
            let space = record.space();
            each(record);
            if let Some(space) = space {
                self.slots.add_read(space.slot, item.len() as u64);
            }
        }
        most
    }

    /// Bytes reserved by the program so far. With [`Ring::has_read`], a caller can wait until all
    /// records up to now are read.
    pub fn produced(&self) -> u64 {
        self.positions.produced()
    }

    /// Bytes that wait in the ring.
    pub fn waiting(&self) -> u64 {
        // The consumer's position is read first: the producer's position, read later, is then never
        // less.
        let consumed = self.positions.consumed();
        self.positions.produced().wrapping_sub(consumed)
    }

    /// Whether everything up to `position` has been read. A record before `position` may not be
    /// submitted yet.
    pub fn has_read(&self, position: u64) -> bool {
        self.positions.consumed() >= position
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffer.as_fd()
    }
}

fn word<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

fn space(bytes: &[u8], offset: usize) -> Option<Space> {
    let word = |field| Some(u32::from_ne_bytes(word(bytes, offset + field)?));
    Some(Space {
        slot: word(offset_of!(Space, slot))?,
        generation: word(offset_of!(Space, generation))?,
    })
}

macro_rules! u32_at {
    ($bytes:expr, $type:ty, $field:ident) => {
        u32::from_ne_bytes(word($bytes, offset_of!($type, $field))?)
    };
}
macro_rules! u64_at {
    ($bytes:expr, $type:ty, $field:ident) => {
        u64::from_ne_bytes(word($bytes, offset_of!($type, $field))?)
    };
}

/// Parses and checks one record.
pub(crate) fn parse(bytes: &[u8]) -> Record<'_> {
    parse_checked(bytes).unwrap_or(Record::Malformed)
}

fn parse_checked(bytes: &[u8]) -> Option<Record<'_>> {
    let kind = u32::from_ne_bytes(word(bytes, 0)?);
    if kind == RecordKind::AllocationSnapshot as u32 {
        let (record, stack) = allocation(bytes)?;
        Some(Record::Snapshot(record, stack))
    } else if kind == RecordKind::AllocationFrames as u32 {
        let (record, stack) = allocation(bytes)?;
        Some(Record::Frames(record, stack))
    } else if kind == RecordKind::AllocationKnown as u32 {
        let (record, id) = allocation(bytes)?;
        Some(Record::Known(record, u64::from_ne_bytes(id.try_into().ok()?)))
    } else if kind == RecordKind::Free as u32 {
        Some(Record::Free(free(bytes)?))
    } else if kind == RecordKind::Exec as u32 {
        Some(Record::Exec(event(bytes)?))
    } else if kind == RecordKind::LiveHigh as u32 {
        Some(Record::LiveHigh(event(bytes)?))
    } else if kind == RecordKind::Appeared as u32 {
        Some(Record::Appeared(event(bytes)?))
    } else if kind == RecordKind::Leaving as u32 {
        Some(Record::Leaving(event(bytes)?))
    } else if kind == RecordKind::ExpectedExec as u32 {
        Some(Record::ExpectedExec(event(bytes)?))
    } else if kind == RecordKind::Gate as u32 {
        Some(Record::Gate(event(bytes)?))
    } else if kind == RecordKind::Python as u32 {
        Some(Record::Python(python(bytes)?))
    } else if kind == RecordKind::Mapping as u32 {
        let (record, stack) = mapping(bytes)?;
        Some(Record::Mapping(record, stack))
    } else {
        None
    }
}

fn allocation(bytes: &[u8]) -> Option<(AllocationRecord, &[u8])> {
    type R = AllocationRecord;
    let record = AllocationRecord {
        kind: u32_at!(bytes, R, kind),
        stack_bytes: u32_at!(bytes, R, stack_bytes),
        space: space(bytes, offset_of!(R, space))?,
        role: u32_at!(bytes, R, role),
        tid: u32_at!(bytes, R, tid),
        sample: u64_at!(bytes, R, sample),
        time_ns: u64_at!(bytes, R, time_ns),
        pointer: u64_at!(bytes, R, pointer),
        size: u64_at!(bytes, R, size),
        design: u64_at!(bytes, R, design),
        offset: u64_at!(bytes, R, offset),
        function: u64_at!(bytes, R, function),
        ip: u64_at!(bytes, R, ip),
        sp: u64_at!(bytes, R, sp),
        bp: u64_at!(bytes, R, bp),
        hijacked_slot: u64_at!(bytes, R, hijacked_slot),
        hijacked_ip: u64_at!(bytes, R, hijacked_ip),
        live: u32_at!(bytes, R, live),
        hits: u32_at!(bytes, R, hits),
    };
    let stack = bytes.get(size_of::<R>()..)?.get(..record.stack_bytes as usize)?;
    Some((record, stack))
}

fn free(bytes: &[u8]) -> Option<FreeRecord> {
    type R = FreeRecord;
    Some(FreeRecord {
        kind: u32_at!(bytes, R, kind),
        pad: 0,
        space: space(bytes, offset_of!(R, space))?,
        sample: u64_at!(bytes, R, sample),
        time_ns: u64_at!(bytes, R, time_ns),
    })
}

fn event(bytes: &[u8]) -> Option<EventRecord> {
    type R = EventRecord;
    Some(EventRecord {
        kind: u32_at!(bytes, R, kind),
        pid: u32_at!(bytes, R, pid),
        space: space(bytes, offset_of!(R, space))?,
        time_ns: u64_at!(bytes, R, time_ns),
        comm: word(bytes, offset_of!(R, comm))?,
    })
}

fn python(bytes: &[u8]) -> Option<PythonStack> {
    type R = PythonRecord;
    let count = u32_at!(bytes, R, count) as usize;
    let frames = bytes.get(offset_of!(R, frames)..)?.get(..count * size_of::<PythonFrame>())?;
    let frame = |bytes: &[u8]| {
        type F = PythonFrame;
        Some(PythonFrame {
            code: u64_at!(bytes, F, code),
            instruction: u64_at!(bytes, F, instruction),
            boundary: u64_at!(bytes, F, boundary),
            fingerprint: u64_at!(bytes, F, fingerprint),
            address: u64_at!(bytes, F, address),
        })
    };
    let frames = frames.chunks_exact(size_of::<PythonFrame>()).map(frame);
    Some(PythonStack {
        space: space(bytes, offset_of!(R, space))?,
        sample: u64_at!(bytes, R, sample),
        flags: u32_at!(bytes, R, flags),
        frames: frames.collect::<Option<_>>().filter(|_| count <= MAX_PYTHON_FRAMES)?,
    })
}

fn mapping(bytes: &[u8]) -> Option<(MappingRecord, &[u8])> {
    type R = MappingRecord;
    let record = MappingRecord {
        kind: u32_at!(bytes, R, kind),
        stack_bytes: u32_at!(bytes, R, stack_bytes),
        space: space(bytes, offset_of!(R, space))?,
        tid: u32_at!(bytes, R, tid),
        call: u32_at!(bytes, R, call),
        time_ns: u64_at!(bytes, R, time_ns),
        address: u64_at!(bytes, R, address),
        length: u64_at!(bytes, R, length),
        old_address: u64_at!(bytes, R, old_address),
        old_length: u64_at!(bytes, R, old_length),
        flags: u64_at!(bytes, R, flags),
        function: u64_at!(bytes, R, function),
        ip: u64_at!(bytes, R, ip),
        sp: u64_at!(bytes, R, sp),
        bp: u64_at!(bytes, R, bp),
    };
    let stack = bytes.get(size_of::<R>()..)?.get(..record.stack_bytes as usize)?;
    Some((record, stack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_unknown_and_inconsistent_records_are_malformed() {
        assert!(matches!(parse(&[]), Record::Malformed));
        assert!(matches!(parse(&[99, 0, 0, 0, 0, 0, 0, 0]), Record::Malformed));
        assert!(matches!(parse(&[3, 0, 0, 0]), Record::Malformed));
        // An allocation that claims more stack than the record has.
        let mut bytes = vec![0u8; size_of::<AllocationRecord>() + 8];
        bytes[0] = RecordKind::AllocationSnapshot as u8;
        bytes[4] = 9;
        assert!(matches!(parse(&bytes), Record::Malformed));
        bytes[4] = 8;
        assert!(matches!(parse(&bytes), Record::Snapshot(_, stack) if stack.len() == 8));
        // A record that claims more Python frames than it has room for.
        let mut bytes = vec![0u8; size_of::<PythonRecord>()];
        bytes[0] = RecordKind::Python as u8;
        bytes[4] = MAX_PYTHON_FRAMES as u8 + 1;
        assert!(matches!(parse(&bytes), Record::Malformed));
        bytes[4] = 3;
        let whole = offset_of!(PythonRecord, frames) + 3 * size_of::<PythonFrame>();
        assert!(matches!(parse(&bytes[..whole]), Record::Python(of) if of.frames.len() == 3));
        assert!(matches!(parse(&bytes[..whole - 1]), Record::Malformed));
    }
}
