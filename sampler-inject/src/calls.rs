//! Borrows a thread of the target to make a few system calls. The thread finds its way back even if
//! the injector dies.
//!
//! The borrowed thread runs a stub in the unused end of a mapped file's code. The stub makes the
//! calls of a table, up to the first that fails.
//! Then the stub waits a moment, restores the thread's signal mask, registers and flags from its
//! own data, and jumps to where the thread was.
//! While the injector lives, the stub never reaches that jump. The injector stops the thread where
//! it waits and sets its registers, so that the kernel itself restarts the interrupted call. If the
//! injector dies, the stub finishes alone.
//!
//! The table lies behind the stub's data. The stack may be one of a coroutine, with other memory
//! close below it: the stub pushes only one word there, below the red zone.
//!
//! Order matters. On the way in, the registers are set to the stub before the signals are blocked.
//! On the way back, the signals are unblocked before the registers are set back. A thread that is
//! released between any two steps is in the stub, which restores both.
//!
//! ```text
//! stub:   magic | name | code | time to wait | signal mask | registers of the thread | table: call, call …, end
//! stack:  … the function's own | red zone | flags
//! ```

use crate::kernel::{self, Change, RESTART_BY_BLOCK, RESTARTS, Tid};
use crate::memory::Memory;
use crate::stop::{mend, stop_thread, wait_for};
use anyhow::{Context, Result, bail, ensure};
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use libc::user_regs_struct;
use std::time::{Duration, Instant};

/// `__USER_CS`: 64-bit code.
pub const CODE_SEGMENT: u64 = 0x33;
/// "SMPLSTUB": marks a stub that a dead injector left where zeros should be.
pub const MAGIC: [u8; 8] = *b"SMPLSTUB";
/// Sizes of the room for a stub and its table, the better one first. The smaller one has room for
/// nine calls at a time.
pub const ROOM_BYTES: [u64; 2] = [2048, 1024];
/// Maximum time for the calls of a table, and for the stop after them.
const CALL_PATIENCE: Duration = Duration::from_millis(500);
/// Time that the stub waits to be stopped, in nanoseconds. A living injector always stops it
/// earlier.
const WAIT_NS: u64 = 100_000_000;
/// Bytes below the stack pointer that belong to the function (System V ABI), and bytes of the word
/// that the stub pushes below them.
const RED_ZONE_BYTES: u64 = 128;
const STACK_BYTES: u64 = 8;
/// Time between two checks of a thread that makes its calls.
const POLL_PERIOD: Duration = Duration::from_micros(20);

// Offsets in the stub.
const NAME: u64 = 8;
const NAME_BYTES: usize = 48;
const CODE: u64 = NAME + NAME_BYTES as u64;
/// Words of [`return_registers`].
const REGISTERS: usize = 18;
/// A call: its number and six arguments.
const CALL_BYTES: u64 = 56;
/// Stands in the place of a call's number at the end of the table.
const END: u64 = u64::MAX;
/// Results from here up to −1 are errors.
const LAST_ERROR: i32 = -4095;

/// A system call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number of the call.
    pub nr: i64,
    /// Arguments of the call.
    pub args: [u64; 6],
}

impl Call {
    fn bytes(&self) -> [u8; CALL_BYTES as usize] {
        let mut bytes = [0; CALL_BYTES as usize];
        let words = std::iter::once(self.nr as u64).chain(self.args);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// A place for the stub.
#[derive(Clone, Copy, Debug)]
pub struct StubPlace {
    /// Address of the stub.
    pub address: u64,
    /// Size of the room there.
    pub bytes: u64,
    /// Address of the table.
    table: u64,
    /// Address behind the `syscall` instruction of the table's calls, as a seccomp program sees it.
    pub syscall_ip: u64,
    /// Address behind the `syscall` instruction that waits.
    wait_ip: u64,
    /// Address behind the `syscall` instruction that restores the signal mask.
    mask_ip: u64,
    wait: u64,
    mask: u64,
    /// Address at which the stub begins to wait.
    wait_start: u64,
}

impl StubPlace {
    /// Describes the stub at an address with this many bytes of room.
    ///
    /// # Errors
    /// If the stub cannot be encoded, or the room is too small.
    pub fn at(address: u64, bytes: u64) -> Result<StubPlace> {
        let (_, place) = code((address, bytes), &[0; REGISTERS], 0)?;
        ensure!(place.max_calls() > 0, "{bytes} bytes are too few for the stub");
        Ok(place)
    }

    /// Maximum number of calls in one table.
    #[must_use]
    pub fn max_calls(&self) -> usize {
        let calls = (self.address + self.bytes).saturating_sub(self.table) / CALL_BYTES;
        // The last one is the end of the table.
        calls.saturating_sub(1) as usize
    }

    /// The calls that the stub makes by itself at its end, and the addresses behind their
    /// instructions.
    #[must_use]
    pub fn own_calls(&self) -> [(Call, u64); 2] {
        let wait = [0, 0, self.wait, 0, 8, 0];
        let mask = [libc::SIG_SETMASK as u64, self.mask, 0, 8, 0, 0];
        [
            (Call { nr: libc::SYS_ppoll, args: wait }, self.wait_ip),
            (Call { nr: libc::SYS_rt_sigprocmask, args: mask }, self.mask_ip),
        ]
    }

    /// Address of the name that a call passes.
    #[must_use]
    pub fn name(&self) -> u64 {
        self.address + NAME
    }

    /// Whether an address is in the stub.
    #[must_use]
    pub fn has(&self, address: u64) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }
}

/// Machine code and data of a stub in a room: its address and size.
fn code(room: (u64, u64), home: &[u64; REGISTERS], mask: u64) -> Result<(Vec<u8>, StubPlace)> {
    assemble(room, home, mask).context("assemble the stub")
}

/// Registers in the order of [`return_registers`].
const RESTORED: [AsmRegister64; 15] =
    [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15];

fn assemble(
    (stub, bytes): (u64, u64),
    home: &[u64; REGISTERS],
    mask: u64,
) -> Result<(Vec<u8>, StubPlace), IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let [mut next, mut wait, mut called, mut waited, mut unmasked, mut wait_time, mut mask_word] =
        [(); 7].map(|()| a.create_label());
    let mut words = [(); REGISTERS].map(|()| a.create_label());
    a.set_label(&mut next)?;
    a.mov(rax, qword_ptr(r12))?;
    a.test(rax, rax)?;
    a.js(wait)?;
    for (register, at) in [(rdi, 8), (rsi, 16), (rdx, 24), (r10, 32), (r8, 40), (r9, 48)] {
        a.mov(register, qword_ptr(r12 + at))?;
    }
    a.add(r12, CALL_BYTES as i32)?;
    a.syscall()?;
    a.set_label(&mut called)?;
    a.mov(r13, rax)?;
    a.cmp(rax, LAST_ERROR)?;
    a.jb(next)?;
    a.set_label(&mut wait)?;
    // Not nanosleep: it would overwrite the kernel's restart data of the interrupted call.
    a.mov(eax, libc::SYS_ppoll as i32)?;
    a.xor(edi, edi)?;
    a.xor(esi, esi)?;
    a.lea(rdx, qword_ptr(wait_time))?;
    a.xor(r10d, r10d)?;
    a.mov(r8d, 8)?;
    a.syscall()?;
    a.set_label(&mut waited)?;
    a.mov(eax, libc::SYS_rt_sigprocmask as i32)?;
    a.mov(edi, libc::SIG_SETMASK)?;
    a.lea(rsi, qword_ptr(mask_word))?;
    a.xor(edx, edx)?;
    a.mov(r10d, 8)?;
    a.syscall()?;
    a.set_label(&mut unmasked)?;
    // The stack pointer is below the red zone: a signal handler may run at any of these
    // instructions.
    a.push(qword_ptr(words[0]))?;
    a.popfq()?;
    for (register, word) in RESTORED.into_iter().zip(&words[1..]) {
        a.mov(register, qword_ptr(*word))?;
    }
    a.mov(rsp, qword_ptr(words[16]))?;
    a.jmp(qword_ptr(words[17]))?;
    a.set_label(&mut wait_time)?;
    a.dq(&[0, WAIT_NS])?;
    a.set_label(&mut mask_word)?;
    a.dq(&[mask])?;
    for (label, word) in words.iter_mut().zip(home) {
        a.set_label(label)?;
        a.dq(&[*word])?;
    }
    let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = a.assemble_options(stub + CODE, options)?;
    let place = StubPlace {
        address: stub,
        bytes,
        table: (stub + CODE + result.inner.code_buffer.len() as u64).next_multiple_of(8),
        syscall_ip: result.label_ip(&called)?,
        wait_ip: result.label_ip(&waited)?,
        mask_ip: result.label_ip(&unmasked)?,
        wait: result.label_ip(&wait_time)?,
        mask: result.label_ip(&mask_word)?,
        wait_start: result.label_ip(&wait)?,
    };
    Ok((result.inner.code_buffer, place))
}

/// Flags, fifteen registers in the order of [`RESTORED`], stack pointer and instruction pointer
/// with which the stub lets a thread go on.
///
/// An interrupted system call that the kernel would restart is made again, as the kernel does it
/// (arch/x86/kernel/signal.c, `arch_do_signal_or_restart`).
fn return_registers(home: &user_regs_struct) -> [u64; REGISTERS] {
    let (mut result, mut next) = (home.rax, home.rip);
    if (home.orig_rax as i64) >= 0 && RESTARTS.contains(&(result as i64)) {
        let is_by_block = result as i64 == RESTART_BY_BLOCK;
        result = if is_by_block { libc::SYS_restart_syscall as u64 } else { home.orig_rax };
        // The length of `syscall`.
        next -= 2;
    }
    let r = home;
    [
        r.eflags, result, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11,
        r.r12, r.r13, r.r14, r.r15, r.rsp, next,
    ]
}

/// Bytes of the whole stub.
fn stub(place: StubPlace, home: &user_regs_struct, mask: u64, name: &str) -> Result<Vec<u8>> {
    let (code, _) = code((place.address, place.bytes), &return_registers(home), mask)?;
    let mut bytes = MAGIC.to_vec();
    ensure!(name.len() < NAME_BYTES, "the name {name} is too long");
    bytes.extend(name.bytes());
    bytes.resize(CODE as usize, 0);
    bytes.extend(code);
    Ok(bytes)
}

/// A stopped thread that may be borrowed.
#[derive(Debug)]
pub struct Thread {
    /// Number of the thread.
    pub tid: Tid,
    registers: user_regs_struct,
}

impl Thread {
    /// Stops a thread.
    ///
    /// # Errors
    /// If the thread does not stop in time, or not where it can be borrowed. The thread then runs
    /// on.
    pub fn stop(tid: Tid, memory: &Memory) -> Result<Thread> {
        stop_thread(tid)?;
        let registers = kernel::registers(tid)?;
        let thread = Thread { tid, registers };
        if let Err(error) = can_be_borrowed(tid, &registers, memory) {
            thread.release();
            return Err(error);
        }
        Ok(thread)
    }

    /// Lets the thread run on.
    pub fn release(self) {
        let _ = kernel::detach(self.tid, 0);
    }
}

/// Checks that a stopped thread is at a point from which it can be borrowed and returned.
fn can_be_borrowed(tid: Tid, registers: &user_regs_struct, memory: &Memory) -> Result<()> {
    ensure!(registers.cs == CODE_SEGMENT, "thread {tid} runs 32-bit code");
    let below = registers.rsp.checked_sub(RED_ZONE_BYTES + STACK_BYTES);
    let below = below.with_context(|| format!("thread {tid} has no stack"))?;
    memory
        .read(below, (RED_ZONE_BYTES + STACK_BYTES) as usize)
        .with_context(|| format!("thread {tid} has no stack"))?;
    let rseq = kernel::rseq_address(tid).unwrap_or(0);
    if rseq != 0 {
        // `struct rseq`: two CPU numbers, then the address of `struct rseq_cs`: version, flags,
        // start, length.
        let section = memory.word(rseq + 8)?;
        if section != 0 {
            let [start, length] = [memory.word(section + 8)?, memory.word(section + 16)?];
            let is_inside = registers.rip.wrapping_sub(start) < length;
            ensure!(!is_inside, "thread {tid} is in a restartable sequence");
        }
    }
    Ok(())
}

/// State of a borrowed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Stopped so that the kernel restarts the call that the registers describe.
    AtStop,
    /// The thread makes its calls, or waits.
    Away,
    /// The thread is not traced any more.
    LetGo,
}

/// A thread in the stub.
#[derive(Debug)]
pub struct Borrowed<'m> {
    tid: Tid,
    memory: &'m Memory,
    place: StubPlace,
    home: user_regs_struct,
    mask: u64,
    state: State,
    since: Instant,
}

impl<'m> Borrowed<'m> {
    /// Moves a stopped thread to the stub at `place`.
    ///
    /// # Errors
    /// If something cannot be written. The thread then runs on as before.
    pub fn take(thread: Thread, place: StubPlace, name: &str, memory: &'m Memory) -> Result<Self> {
        let (tid, home) = (thread.tid, thread.registers);
        let mut borrowed = Borrowed {
            tid,
            memory,
            place,
            home,
            mask: 0,
            state: State::AtStop,
            since: Instant::now(),
        };
        match borrowed.enter(name) {
            Ok(()) => Ok(borrowed),
            Err(error) => {
                borrowed.return_thread();
                Err(error)
            }
        }
    }

    fn enter(&mut self, name: &str) -> Result<()> {
        self.mask = kernel::blocked_signals(self.tid)?;
        let stub = stub(self.place, &self.home, self.mask, name)?;
        self.memory.write(self.place.address, &stub)?;
        // The thread sees what `memory` has written: the process has not executed another program
        // since.
        let found = kernel::peek(self.tid, self.place.address)?;
        ensure!(found == u64::from_le_bytes(MAGIC), "the process has begun another program");
        let mut registers = self.home;
        registers.rip = self.place.wait_start;
        registers.rsp = self.home.rsp - RED_ZONE_BYTES;
        // No system call is restarted here: only the return to the program restarts the interrupted
        // call.
        registers.orig_rax = u64::MAX;
        // Only the interrupt flag (and the fixed bit 1): no direction flag, no single step.
        registers.eflags = 0x202;
        kernel::set_registers(self.tid, &registers)?;
        kernel::set_blocked_signals(self.tid, u64::MAX)?;
        kernel::suspend_seccomp(self.tid);
        Ok(())
    }

    /// Number of the thread.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Maximum number of calls that [`Borrowed::run`] makes.
    #[must_use]
    pub fn max_calls(&self) -> usize {
        self.place.max_calls()
    }

    /// Lets the thread make calls up to the first that fails. Returns how many calls it made, and
    /// the result of the last one.
    ///
    /// # Errors
    /// If another process stopped or killed the thread, or the calls take too long. The caller then
    /// has to give the thread back.
    pub fn run(&mut self, calls: &[Call]) -> Result<(usize, i64)> {
        ensure!(self.state == State::AtStop, "thread {} is elsewhere", self.tid);
        let end = Call { nr: END as i64, args: [0; 6] };
        let table: Vec<u8> = calls.iter().chain([&end]).flat_map(Call::bytes).collect();
        ensure!(calls.len() <= self.max_calls(), "{} calls at once", calls.len());
        let mut registers = kernel::registers(self.tid)?;
        let start = self.place.table;
        self.memory.write(start, &table)?;
        (registers.r12, registers.r13) = (start, 0);
        registers.rip = self.place.address + CODE;
        registers.orig_rax = u64::MAX;
        kernel::set_registers(self.tid, &registers)?;
        kernel::resume(self.tid, 0)?;
        self.state = State::Away;
        self.wait_until_done()?;
        self.stop_in_stub();
        ensure!(self.state == State::AtStop, "thread {} has gone home by itself", self.tid);
        let registers = kernel::registers(self.tid)?;
        let made = registers.r12.wrapping_sub(start) / CALL_BYTES;
        Ok((made as usize, registers.r13 as i64))
    }

    /// Waits until the thread has made its calls and waits. All signals except SIGKILL and SIGSTOP
    /// are blocked.
    /// If SIGSTOP arrives, the thread is returned to the program from that stop.
    fn wait_until_done(&mut self) -> Result<()> {
        let path = format!("/proc/{}/syscall", self.tid);
        let waits = format!("{} 0x0 0x0 {:#x} ", libc::SYS_ppoll, self.place.wait);
        let deadline = Instant::now() + CALL_PATIENCE;
        loop {
            match kernel::poll(self.tid)? {
                None => {}
                Some(Change::Signal(signal)) => {
                    self.set_home(signal);
                    bail!("the process is stopped by signal {signal}")
                }
                Some(Change::Gone) => {
                    self.state = State::LetGo;
                    bail!("thread {} has ended", self.tid)
                }
                Some(Change::Interrupted | Change::Syscall) => {
                    self.state = State::AtStop;
                    bail!("the process is stopped by a signal")
                }
            }
            if std::fs::read_to_string(&path).is_ok_and(|call| call.starts_with(&waits)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the calls of thread {} take too long", self.tid);
            std::thread::sleep(POLL_PERIOD);
        }
    }

    /// Returns the thread to the program, and removes the stub. Returns how long the thread was
    /// borrowed.
    #[must_use = "the figure is for the report"]
    pub fn give_back(mut self) -> Duration {
        self.return_thread();
        self.since.elapsed()
    }

    fn return_thread(&mut self) {
        if self.state == State::Away {
            self.stop_in_stub();
        }
        // A thread that did not stop is released when this process ends; the stub then returns it
        // to the program.
        if self.state == State::AtStop {
            self.set_home(0);
        }
    }

    /// Stops the thread where registers may be set so that the kernel restarts a call.
    fn stop_in_stub(&mut self) {
        let interrupted = kernel::interrupt(self.tid);
        let deadline = Instant::now() + CALL_PATIENCE;
        let change = interrupted.ok().and_then(|()| wait_for(self.tid, deadline).ok().flatten());
        let is_in_stub =
            || kernel::registers(self.tid).is_ok_and(|registers| self.place.has(registers.rip));
        match change {
            Some(Change::Interrupted) if is_in_stub() => self.state = State::AtStop,
            Some(Change::Signal(signal)) if is_in_stub() => self.set_home(signal),
            // The stub has already returned the thread to the program.
            Some(Change::Interrupted) => {
                mend(self.tid);
                let _ = kernel::detach(self.tid, 0);
                self.state = State::LetGo;
            }
            Some(Change::Signal(signal)) => {
                let _ = kernel::detach(self.tid, signal);
                self.state = State::LetGo;
            }
            _ => {}
        }
    }

    /// Restores the signal mask first: until the registers are set the thread is in the stub, which
    /// restores both.
    /// The stub is removed only when the thread has left it.
    fn set_home(&mut self, signal: i32) {
        let done = kernel::set_blocked_signals(self.tid, self.mask)
            .and_then(|()| kernel::set_registers(self.tid, &self.home))
            .and_then(|()| kernel::detach(self.tid, signal));
        self.state = State::LetGo;
        if done.is_ok() {
            let _ = self.memory.write(self.place.address, &vec![0; self.place.bytes as usize]);
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.return_thread();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: u64 = 0x7f00_1234_5800;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];

    fn thread(result: u64, call: i64) -> user_regs_struct {
        // Every other register holds its own number.
        user_regs_struct {
            r15: 115,
            r14: 114,
            r13: 113,
            r12: 112,
            rbp: 105,
            rbx: 103,
            r11: 111,
            r10: 110,
            r9: 109,
            r8: 108,
            rax: result,
            rcx: 101,
            rdx: 102,
            rsi: 104,
            rdi: 106,
            orig_rax: call as u64,
            rip: 0x40_1000,
            cs: CODE_SEGMENT,
            eflags: 0x246,
            rsp: 0x7ffc_0000,
            ss: 0,
            fs_base: 0,
            gs_base: 0,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }

    #[test]
    fn filters_are_evaluated_at_the_addresses_of_the_stub() {
        let [more, room] = ROOM_BYTES.map(|bytes| StubPlace::at(STUB, bytes).unwrap());
        assert_eq!([more.max_calls(), room.max_calls()], [27, 9]);
        let place = room;
        let bytes = stub(place, &thread(7, -1), 5, "name").unwrap();
        let [(_, wait_ip), (last, mask_ip)] = place.own_calls();
        for ip in [place.syscall_ip, wait_ip, mask_ip] {
            let at = (ip - STUB) as usize;
            assert_eq!(bytes[at - 2..at], SYSCALL);
        }
        let mask = (last.args[1] - STUB) as usize;
        assert_eq!(bytes[mask..mask + 8], 5u64.to_le_bytes());
        assert_eq!(&bytes[NAME as usize..NAME as usize + 5], b"name\0");
        assert!(
            bytes.len() as u64 <= place.table - STUB && place.has(STUB) && !place.has(STUB + 1024)
        );
    }

    #[test]
    fn a_computing_thread_resumes_with_its_registers() {
        let words = return_registers(&thread(7, -1));
        assert_eq!(words[0], 0x246);
        assert_eq!(words[1], 7);
        assert_eq!(words[16..], [0x7ffc_0000, 0x40_1000]);
    }

    /// Results that only a tracer sees are handled as the kernel would handle them.
    #[test]
    fn interrupted_calls_are_made_again() {
        let interrupted = |result: i64| return_registers(&thread(result as u64, libc::SYS_futex));
        for result in [-512, -513, -514] {
            let words = interrupted(result);
            assert_eq!([words[1], words[17]], [libc::SYS_futex as u64, 0x40_1000 - 2], "{result}");
        }
        let words = interrupted(RESTART_BY_BLOCK);
        assert_eq!([words[1], words[17]], [libc::SYS_restart_syscall as u64, 0x40_1000 - 2]);
        let words = interrupted(-4);
        assert_eq!([words[1], words[17]], [-4i64 as u64, 0x40_1000]);
    }
}
