//! Offsets of members in the kernel's structs, from the kernel's own description of its types (BTF,
//! `Documentation/bpf/btf.rst`).
//!
//! Reads only the part of BTF that the offsets need. Every other type is skipped by its length.
//! Inconsistent data are an error.

use anyhow::{Context as _, bail};
use std::path::Path;

/// File in which a kernel with `CONFIG_DEBUG_INFO_BTF` describes its types.
const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Bytes of a type's header: name, info, and size or type.
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const VALUE_BYTES: usize = 8;
/// Maximum depth of anonymous structs inside anonymous structs.
const MAX_DEPTH: usize = 8;

/// Offsets of the members that are read when a process forks or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOffsets {
    /// Offset of the thread id in the task, bytes.
    pub pid: u32,
    /// Offset of the process id in the task, bytes.
    pub tgid: u32,
    /// Offset of the pointer to the `signal_struct`, which a process's threads share, in the task;
    /// bytes.
    pub signal: u32,
    /// Offset of the number of threads that have not ended, in the `signal_struct`; bytes.
    pub live: u32,
    /// Offset of the pointer to the `mm_struct`, in the task; bytes, 0: not known.
    pub mm: u32,
    /// Offset of the start of the first thread's stack, in the `mm_struct`; bytes, 0: not known.
    pub start_stack: u32,
    /// Offset of the base of the thread's data (the register `fs`), in the task; bytes, 0: not
    /// known.
    pub fs_base: u32,
    /// How a task shows that a thread's system calls do not reach the kernel; `None`: not known.
    pub diverted: Option<DivertedCalls>,
    /// Offsets of a task's numbers in pid namespaces; `None`: not known.
    pub numbers: Option<PidOffsets>,
}

/// Where a task has the flags for the handling of its system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivertedCalls {
    /// Offset of the word of flags in a task, bytes.
    pub work: u32,
    /// The flags under which system calls go to the program itself or to its tracer.
    pub flags: u64,
}

impl DivertedCalls {
    /// The values of every kernel that has such flags, from Linux 5.11 to 6.18; for kernels that do
    /// not describe their types.
    pub const USUAL: DivertedCalls = DivertedCalls { work: 8, flags: 1 << 5 | 1 << 3 };

    fn read(types: &Types<'_>) -> anyhow::Result<DivertedCalls> {
        let flag = |name: &str| {
            let bit = types.value_in("syscall_work_bit", &format!("SYSCALL_WORK_BIT_{name}"))?;
            1u64.checked_shl(bit).with_context(|| format!("{name} is bit {bit}"))
        };
        let information = types.offset_in("task_struct", "thread_info")?;
        Ok(DivertedCalls {
            work: information + types.offset_in("thread_info", "syscall_work")?,
            flags: flag("SYSCALL_USER_DISPATCH")? | flag("SYSCALL_EMU")?,
        })
    }
}

/// Offsets of a task's numbers, one number per pid namespace; bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidOffsets {
    /// Offset of the pointer to the process's first thread, in the task.
    pub leader: u32,
    /// Offset of the pointer to the `struct pid`, in the task.
    pub thread_pid: u32,
    /// Offset of the depth of the task's own namespace, in the `struct pid`.
    pub level: u32,
    /// Offset of the numbers, in the `struct pid`.
    pub numbers: u32,
    /// Offset of the inode, in a namespace.
    pub namespace_inode: u32,
}

impl PidOffsets {
    fn read(types: &Types<'_>) -> anyhow::Result<PidOffsets> {
        // Each number must be followed by its namespace.
        let number = [types.offset_in("upid", "nr")?, types.offset_in("upid", "ns")?];
        anyhow::ensure!(number == [0, 8], "upid.nr and upid.ns are not side by side");
        Ok(PidOffsets {
            leader: types.offset_in("task_struct", "group_leader")?,
            thread_pid: types.offset_in("task_struct", "thread_pid")?,
            level: types.offset_in("pid", "level")?,
            numbers: types.offset_in("pid", "numbers")?,
            namespace_inode: types.offset_in("pid_namespace", "ns")?
                + types.offset_in("ns_common", "inum")?,
        })
    }
}

impl TaskOffsets {
    /// Reads the offsets of the running kernel.
    ///
    /// # Errors
    /// If the kernel does not describe its types, or lacks one of the required members.
    pub fn of_kernel() -> anyhow::Result<TaskOffsets> {
        let bytes = std::fs::read(Path::new(KERNEL)).with_context(|| format!("read {KERNEL}"))?;
        TaskOffsets::read(&bytes).with_context(|| format!("find tasks in {KERNEL}"))
    }

    fn read(bytes: &[u8]) -> anyhow::Result<TaskOffsets> {
        let types = Types::parse(bytes)?;
        let [task, signal, memory] = ["task_struct", "signal_struct", "mm_struct"];
        // 0: the offset is not known, and the program works without it.
        let optional = |offset: anyhow::Result<u32>| offset.unwrap_or(0);
        let thread = types
            .offset_in(task, "thread")
            .and_then(|thread| Ok(thread + types.offset_in("thread_struct", "fsbase")?));
        Ok(TaskOffsets {
            pid: types.offset_in(task, "pid")?,
            tgid: types.offset_in(task, "tgid")?,
            signal: types.offset_in(task, "signal")?,
            live: types.offset_in(signal, "live")?,
            mm: optional(types.offset_in(task, "mm")),
            start_stack: optional(types.offset_in(memory, "start_stack")),
            fs_base: optional(thread),
            diverted: DivertedCalls::read(&types).ok(),
            numbers: PidOffsets::read(&types).ok(),
        })
    }
}

/// A type's header.
#[derive(Clone, Copy)]
struct Type {
    /// Offset of the header among the types, bytes.
    at: usize,
    name: u32,
    info: u32,
}

impl Type {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// Number of members, values or parameters.
    fn length(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Whether members' offsets carry the width of bit fields in their upper 8 bits.
    fn has_bit_fields(self) -> bool {
        self.info >> 31 != 0
    }

    /// Bytes behind the header.
    fn rest(self) -> anyhow::Result<usize> {
        Ok(match self.kind() {
            // Int, var, declaration tag.
            1 | 14 | 17 => 4,
            // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
            2 | 7..=12 | 16 | 18 => 0,
            // Array.
            3 => 12,
            // Struct, union, section, 64-bit enum.
            STRUCT | UNION | 15 | 19 => self.length() * MEMBER_BYTES,
            // Enum, function prototype.
            ENUM | 13 => self.length() * VALUE_BYTES,
            kind => bail!("type {} is of unknown kind {kind}", self.at),
        })
    }
}

/// All types of the kernel.
struct Types<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// The first type has id 1: id 0 is void.
    types: Vec<Type>,
}

fn word(bytes: &[u8], at: usize) -> anyhow::Result<u32> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_le_bytes(*word.with_context(|| format!("cut off at {at}"))?))
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8]) -> anyhow::Result<Types<'a>> {
        anyhow::ensure!(word(bytes, 0)? & 0xffff == u32::from(MAGIC), "no BTF of this machine");
        let header = word(bytes, 4)? as usize;
        let section = |at: usize| {
            let (offset, length) = (word(bytes, at)? as usize, word(bytes, at + 4)? as usize);
            let section = bytes.get(header..).and_then(|rest| rest.get(offset..offset + length));
            section.with_context(|| format!("section of {length} bytes at {offset} is cut off"))
        };
        let (bytes, strings) = (section(8)?, section(16)?);
        let mut types = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let header = Type { at, name: word(bytes, at)?, info: word(bytes, at + 4)? };
            types.push(header);
            at += TYPE_BYTES + header.rest()?;
        }
        Ok(Types { bytes, strings, types })
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn find(&self, kind: u32, name: &str) -> anyhow::Result<Type> {
        let named = |of: &&Type| of.kind() == kind && self.name(of.name) == name.as_bytes();
        self.types.iter().find(named).copied().with_context(|| format!("no type {name}"))
    }

    /// The value of an enum's constant.
    fn value_in(&self, name: &str, constant: &str) -> anyhow::Result<u32> {
        let of = self.find(ENUM, name)?;
        for index in 0..of.length() {
            let at = of.at + TYPE_BYTES + index * VALUE_BYTES;
            if self.name(word(self.bytes, at)?) == constant.as_bytes() {
                return word(self.bytes, at + 4);
            }
        }
        bail!("{name} has no constant {constant}")
    }

    /// Offset of a struct's member in bytes.
    fn offset_in(&self, name: &str, member: &str) -> anyhow::Result<u32> {
        let bits = self.offset(self.find(STRUCT, name)?, member, MAX_DEPTH)?;
        let bits = bits.with_context(|| format!("{name} has no member {member}"))?;
        anyhow::ensure!(bits.is_multiple_of(8), "{name}.{member} is a bit field");
        Ok(bits / 8)
    }

    /// Offset of a member in bits, also of a member of an anonymous struct or union.
    fn offset(&self, of: Type, member: &str, depth: usize) -> anyhow::Result<Option<u32>> {
        for index in 0..of.length() {
            let at = of.at + TYPE_BYTES + index * MEMBER_BYTES;
            let name = self.name(word(self.bytes, at)?);
            let offset = word(self.bytes, at + 8)?;
            let (offset, width) = match of.has_bit_fields() {
                true => (offset & 0xff_ffff, offset >> 24),
                false => (offset, 0),
            };
            if name == member.as_bytes() {
                anyhow::ensure!(width == 0, "{member} is a bit field");
                return Ok(Some(offset));
            }
            if !name.is_empty() || depth == 0 {
                continue;
            }
            let inner = (word(self.bytes, at + 4)? as usize).checked_sub(1);
            let inner = inner.and_then(|id| self.types.get(id)).context("member of no type")?;
            if matches!(inner.kind(), STRUCT | UNION)
                && let Some(more) = self.offset(*inner, member, depth - 1)?
            {
                return Ok(Some(offset + more));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRINGS: &[u8] = b"\0task_struct\0pid\0tgid\0int\0signal\0signal_struct\0live\0";

    /// `struct task_struct { int pid; struct { int tgid; }; int signal; }`, with `pid` and the
    /// inner struct at the given offsets, and `struct signal_struct { int live; }`.
    fn described(pid_bits: u32, inner_bits: u32) -> Vec<u8> {
        let mut types = Vec::new();
        let mut put =
            |words: &[u32]| words.iter().for_each(|word| types.extend(word.to_le_bytes()));
        put(&[22, 1 << 24, 4, 32]);
        put(&[0, STRUCT << 24 | 1, 8, 17, 1, 32]);
        put(&[1, STRUCT << 24 | 3, 24, 13, 1, pid_bits, 0, 2, inner_bits, 26, 1, 160]);
        put(&[33, STRUCT << 24 | 1, 8, 47, 1, 32]);
        let mut bytes = Vec::new();
        let [types_length, strings_length] = [types.len() as u32, STRINGS.len() as u32];
        for word in [0x1_eb9f, 24, 0, types_length, types_length, strings_length] {
            bytes.extend(u32::to_le_bytes(word));
        }
        [bytes, types, STRINGS.to_vec()].concat()
    }

    #[test]
    fn members_are_found_in_anonymous_structs_too() {
        let offsets = TaskOffsets::read(&described(32, 64)).unwrap();
        assert_eq!((offsets.pid, offsets.tgid, offsets.signal, offsets.live), (4, 12, 20, 4));
        assert_eq!((offsets.mm, offsets.start_stack, offsets.fs_base), (0, 0, 0), "not there");
        assert_eq!(offsets.diverted, None);
        assert_eq!(offsets.numbers, None);
    }

    #[test]
    fn damaged_btf_is_refused() {
        let whole = described(32, 64);
        for length in 0..whole.len() - STRINGS.len() {
            assert!(TaskOffsets::read(&whole[..length]).is_err(), "{length}");
        }
        assert!(TaskOffsets::read(&described(3, 64)).is_err());
        let mut unknown = whole;
        unknown[24 + 7] = 31;
        assert!(TaskOffsets::read(&unknown).unwrap_err().to_string().contains("unknown kind"));
    }

    /// Reads the types of the running kernel, if it has them.
    #[test]
    fn the_btf_of_this_kernel_is_read() {
        if Path::new(KERNEL).exists() {
            let offsets = TaskOffsets::of_kernel().unwrap();
            assert_eq!(offsets.tgid, offsets.pid + 4, "they are neighbours since Linux 2.6");
            assert_eq!((offsets.signal % 8, offsets.live % 4), (0, 0));
            let others = [offsets.mm, offsets.start_stack, offsets.fs_base];
            let PidOffsets { leader, thread_pid, numbers, .. } = offsets.numbers.unwrap();
            let others = others.into_iter().chain([leader, thread_pid, numbers]);
            for found in others {
                assert!(found != 0 && found.is_multiple_of(8), "{offsets:?}");
            }
            assert_eq!(offsets.diverted, Some(DivertedCalls::USUAL));
        } else {
            println!("this kernel has no BTF: not tested");
        }
    }
}
