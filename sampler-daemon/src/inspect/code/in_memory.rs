//! Whether code in the memory of a process is still the code of its file.
//!
//! The kernel places a uprobe by the file. It overwrites the first byte in memory with its
//! breakpoint, and executes the file's instruction. If the program or a tool has patched the
//! function, the breakpoint destroys the patch. The pipeline decides what to do about a patched
//! function.
//!
//! The comparison covers everything from the function's entry to behind the probed instruction, and
//! at least `MIN_BYTES`. Tools write jumps of up to 14 bytes at an entry, and a few tools write
//! their jump behind a first `endbr64`. Padding before the entry is not compared: a tool that uses
//! the padding changes the entry too.
//!
//! A breakpoint is no patch. Other tools' uprobes and debuggers write a breakpoint over the first
//! byte of an instruction, and the kernel serves several uprobes at one place. But a program that
//! handles SIGTRAP may have written the breakpoint itself, and would lose its signal to our probe.
//! The breakpoint belongs to a uprobe if a process that does not handle SIGTRAP has the same
//! breakpoint.

use super::patched::Patched;
use crate::inspect::allocator::{Allocator, Function};
use crate::inspect::hazard::is_go;
use crate::inspect::mappings::{self, Backing, Mapping};
use crate::inspect::process;
use iced_x86::{Decoder, DecoderOptions};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Fewest bytes that are compared.
const MIN_BYTES: usize = 16;
/// Bytes of the longest instruction.
const INSTRUCTION_BYTES: usize = 15;
/// `int3`.
const BREAKPOINT: u8 = 0xcc;
/// Most other processes that are checked for the same breakpoint.
const MAX_WITNESSES: usize = 16;
/// The bit of SIGTRAP in `SigCgt` of `/proc/PID/status`.
const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// What is in memory where a file's code should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The file's code, perhaps with breakpoints of others.
    Same,
    /// Other code.
    Other,
    /// The process has not mapped the file there.
    Unmapped,
    /// Unknown: the process is exiting, or has just unmapped the file.
    Unreadable,
}

/// The code of a process.
#[derive(Debug)]
pub struct Code {
    pid: u32,
    memory: File,
    /// Executable mappings of files.
    mapped: Vec<Mapping>,
    /// By the file's inode: processes that map the same file and do not handle SIGTRAP.
    witnesses: RefCell<FxHashMap<u64, Vec<Code>>>,
}

/// Two instructions of a file, by offset: the first one and the probed one.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    probed: u64,
}

impl Code {
    /// Opens the memory of process `pid`, which has these mappings.
    ///
    /// # Errors
    /// If the memory cannot be opened.
    pub fn open(pid: u32, mappings: &[Mapping]) -> io::Result<Code> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let is_code = |of: &&Mapping| of.executable && matches!(of.backing, Backing::File(_));
        let mapped = mappings.iter().filter(is_code).cloned().collect();
        Ok(Code { pid, memory, mapped, witnesses: RefCell::default() })
    }

    /// Compares memory with the file's code of an allocator's function. `is_ours`: a breakpoint
    /// there may be our own.
    pub fn find(&self, allocator: &Allocator, function: &Function, is_ours: bool) -> Found {
        let span = Span { from: function.offset, probed: function.probed() };
        let Allocator { file, path, identity, .. } = allocator;
        self.find_span(file, identity.1, path, span, is_ours)
    }

    /// Compares every mapping of the file, since a file may be mapped several times. One mapping
    /// with other code makes the result [`Found::Other`].
    fn find_span(&self, file: &File, inode: u64, path: &str, span: Span, is_ours: bool) -> Found {
        let displacement = (span.probed - span.from) as usize;
        let mut code = vec![0; displacement + INSTRUCTION_BYTES + MIN_BYTES];
        let Ok(length) = file.read_at(&mut code, span.from) else { return Found::Same };
        code.truncate(length);
        let mut found = Found::Unmapped;
        for mapping in self.mapped.iter().filter(|of| may_hold(of, inode, path, span.from)) {
            let address = mapping.start + (span.from - mapping.offset);
            let mut memory = vec![0; code.len()];
            let length = self.memory.read_at(&mut memory, address).unwrap_or(0);
            if length == 0 {
                found = if found == Found::Unmapped { Found::Unreadable } else { found };
                continue;
            }
            // Behind the last mapped page there is no code.
            let difference = difference(&code[..length], &memory[..length], displacement);
            let is_same = match difference {
                Difference::None => true,
                Difference::Breakpoints => {
                    is_ours
                        || !handles_breakpoints(self.pid)
                        || self.is_uprobe(inode, path, span.from, &memory[..length])
                        // A uprobe may have been removed between the two readings.
                        || self.has_at(address, &code[..length])
                }
                Difference::Other => false,
            };
            if is_same {
                found = Found::Same;
            } else if !self.has_still(mapping) {
                found = Found::Unreadable;
            } else if self.is_same_file(mapping, span.from, &code) {
                return Found::Other;
            }
        }
        found
    }

    /// Whether the breakpoints belong to a uprobe: another process that writes none itself has the
    /// same `bytes` at that offset of the file.
    fn is_uprobe(&self, inode: u64, path: &str, offset: u64, bytes: &[u8]) -> bool {
        let mut known = self.witnesses.borrow_mut();
        let known = known.entry(inode).or_insert_with(|| witnesses(self.pid, inode, path));
        known.iter().any(|code| code.has(inode, path, offset, bytes))
    }

    /// Whether memory has these `bytes` where that offset of the file is mapped.
    fn has(&self, inode: u64, path: &str, offset: u64, bytes: &[u8]) -> bool {
        let mut mapped = self.mapped.iter().filter(|of| may_hold(of, inode, path, offset));
        mapped.any(|of| self.has_at(of.start + (offset - of.offset), bytes))
    }

    /// Whether memory has these `bytes` at this address.
    fn has_at(&self, address: u64, bytes: &[u8]) -> bool {
        let mut there = vec![0; bytes.len()];
        self.memory.read_exact_at(&mut there, address).is_ok() && there == bytes
    }

    /// Whether the process still has the mapping. After an exec, the bytes that were read may
    /// belong to another program.
    fn has_still(&self, mapping: &Mapping) -> bool {
        let now = mappings::executable(self.pid).unwrap_or_default();
        now.iter().any(|of| {
            (of.start, of.offset, of.inode) == (mapping.start, mapping.offset, mapping.inode)
        })
    }

    /// Whether the mapped file has this code too, and is not another file with the same path or
    /// inode number.
    fn is_same_file(&self, mapping: &Mapping, offset: u64, code: &[u8]) -> bool {
        let Ok(file) = mappings::open(self.pid, mapping) else { return true };
        let mut its = vec![0; code.len()];
        file.read_at(&mut its, offset).is_ok_and(|length| its[..length] == *code)
    }
}

/// Functions of an allocator whose code differs in the memory of any process that maps the file
/// now. A process that cannot be read is skipped.
pub fn patched_anywhere(allocator: &Allocator) -> Vec<Patched> {
    let own = std::process::id();
    let patched = process::pids().into_iter().filter(|pid| *pid != own).filter_map(|pid| {
        let mapped = mappings::executable(pid)?;
        let has = |of: &Mapping| is_file(of, allocator.identity.1, &allocator.path);
        let code = mapped.iter().any(has).then(|| Code::open(pid, &mapped).ok()).flatten()?;
        Patched::find(pid, allocator, |of| code.find(allocator, of, false) == Found::Other)
    });
    patched.collect()
}

/// Other processes that map the file and do not handle SIGTRAP. This program comes first, since it
/// writes no breakpoints.
fn witnesses(pid: u32, inode: u64, path: &str) -> Vec<Code> {
    let others = process::pids().into_iter().filter(|other| *other != pid);
    let all = std::iter::once(std::process::id()).chain(others);
    let codes = all.filter_map(|pid| {
        let mapped = mappings::executable(pid)?;
        let has = mapped.iter().any(|of| is_file(of, inode, path)) && !handles_breakpoints(pid);
        has.then(|| Code::open(pid, &mapped).ok()).flatten()
    });
    codes.take(MAX_WITNESSES).collect()
}

/// Whether the mapping may be of that file. Containers show the same file under other numbers, so
/// an equal path is enough.
fn is_file(mapping: &Mapping, inode: u64, path: &str) -> bool {
    match &mapping.backing {
        Backing::File(its) => mapping.inode == inode || its == path,
        _ => false,
    }
}

/// Whether the mapping may hold the byte at that offset of the file.
fn may_hold(mapping: &Mapping, inode: u64, path: &str, offset: u64) -> bool {
    let bytes = mapping.offset..mapping.offset + (mapping.end - mapping.start);
    is_file(mapping, inode, path) && bytes.contains(&offset)
}

/// Whether the process may write breakpoints for itself. Go's runtime handles every signal and
/// writes no breakpoints.
fn handles_breakpoints(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    caught(&status) & SIGTRAP_BIT != 0 && !is_go(pid)
}

/// The signals that a process handles.
fn caught(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// How memory differs from the file's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    None,
    /// Breakpoints at the start of instructions, and nothing else.
    Breakpoints,
    Other,
}

/// Compares `code` with `memory`. `code` begins with an instruction, and the probed instruction is
/// at `displacement`.
fn difference(code: &[u8], memory: &[u8], displacement: usize) -> Difference {
    let mut difference = Difference::None;
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut start = 0;
    while start < code.len() && start < MIN_BYTES.max(displacement + 1) {
        // Bytes that do not decode are compared one by one.
        let is_decoded = decoder.set_position(start).is_ok() && !decoder.decode().is_invalid();
        let end = if is_decoded { decoder.position() } else { start + 1 };
        let (of_file, there) = (&code[start..end], memory.get(start..end));
        match there {
            Some(there) if there == of_file => {}
            Some([BREAKPOINT, rest @ ..]) if is_decoded && *rest == of_file[1..] => {
                difference = Difference::Breakpoints;
            }
            _ => return Difference::Other,
        }
        start = end;
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::placement::Placement;
    use sampler_common::wire::{Role, Shape};
    use std::os::unix::fs::MetadataExt;
    use std::sync::Arc;

    /// The beginning of malloc in one glibc.
    const MALLOC: [u8; 24] = [
        0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xec, 0x10, 0x80, 0x3d, 0x46, 0x1b,
        0x14, 0x00, 0x00, 0x74, 0x10, 0x90, 0x90, 0x90, 0x90,
    ];

    fn with(at: usize, patch: &[u8]) -> [u8; 24] {
        let mut memory = MALLOC;
        memory[at..at + patch.len()].copy_from_slice(patch);
        memory
    }

    #[test]
    fn a_patch_differs_wherever_it_is_written() {
        let patches: [(usize, &[u8]); 6] = [
            (0, &[0xe9, 1, 2, 3, 4]),
            (0, &[0x49, 0xbb, 1, 2, 3, 4, 5, 6, 0, 0, 0x41, 0xff, 0xe3]),
            (0, &[0xeb, 0xf9]),
            // Behind the first instruction, which is the probed one.
            (2, &[0xe9, 1, 2, 3, 4]),
            // A breakpoint and another changed byte.
            (0, &[0xcc, 0x90]),
            // In the middle of an instruction.
            (5, &[0xcc]),
        ];
        for (at, patch) in patches {
            assert_eq!(difference(&MALLOC, &with(at, patch), 0), Difference::Other, "{patch:02x?}");
        }
    }

    #[test]
    fn breakpoints_are_distinguished_from_patches() {
        assert_eq!(difference(&MALLOC, &MALLOC, 0), Difference::None);
        for at in [0, 2, 3, 4, 7, 11] {
            assert_eq!(difference(&MALLOC, &with(at, &[0xcc]), 0), Difference::Breakpoints);
        }
    }

    #[test]
    fn code_is_compared_up_to_the_relevant_length() {
        // The instruction at 11 ends at 18.
        assert_eq!(difference(&MALLOC, &with(17, &[1]), 0), Difference::Other);
        assert_eq!(difference(&MALLOC, &with(18, &[0xeb]), 0), Difference::None);
        assert_eq!(difference(&MALLOC, &with(18, &[0xeb]), 18), Difference::Other);
        assert_eq!(difference(&[], &[], 0), Difference::None);
    }

    #[test]
    fn handled_signals_are_in_the_status() {
        let status = "Name:\tx\nSigIgn:\t0000000000000010\nSigCgt:\t0000000180000010\nCapInh:\t0\n";
        assert_eq!(caught(status), 0x1_8000_0010);
        assert_eq!(caught("Name:\tx\n"), 0);
    }

    #[test]
    fn our_own_code_equals_its_file() {
        let program = Arc::new(File::open("/proc/self/exe").unwrap());
        let here = our_own_code_equals_its_file as *const () as u64;
        let mapped = mappings::executable(std::process::id()).unwrap();
        let of = mapped.iter().find(|of| (of.start..of.end).contains(&here)).unwrap();
        let Backing::File(path) = &of.backing else { panic!("{of:?}") };
        let place = |offset| Function {
            symbols: vec!["here".to_owned()],
            role: Role::Malloc,
            shape: Shape::DEFAULT,
            offset,
            placement: Placement {
                displacement: 0,
                instruction: String::new(),
                emulated: true,
                reason: String::new(),
            },
        };
        let allocator = Allocator {
            path: path.clone(),
            identity: (0, program.metadata().unwrap().ino()),
            file: program,
            ..Allocator::none()
        };
        let code = Code::open(std::process::id(), &mapped).unwrap();
        let offset = of.offset + (here - of.start);
        assert_eq!(code.find(&allocator, &place(offset), false), Found::Same);
        // Headers, which are not executable.
        assert_eq!(code.find(&allocator, &place(0), false), Found::Unmapped);
        // Mappings of a program from before an exec: the code there is another file's.
        let other = mapped.iter().find(|it| it.inode != of.inode && it.inode != 0).unwrap();
        let mut past = of.clone();
        (past.start, past.end) = (other.start, other.start + (of.end - of.start));
        let code = Code::open(std::process::id(), &[past]).unwrap();
        let early = place(of.offset);
        assert_eq!(code.find(&allocator, &early, false), Found::Unreadable);
        // Nothing is there.
        let mut gone = of.clone();
        (gone.start, gone.end) = (0x1000, 0x1000 + (of.end - of.start));
        let code = Code::open(std::process::id(), &[gone]).unwrap();
        assert_eq!(code.find(&allocator, &early, false), Found::Unreadable);
    }
}
