//! Runs machine code one instruction after another, from chosen registers until it leaves chosen
//! addresses.
//!
//! A breakpoint brings the thread into a signal handler, which puts the registers in and sets the
//! trap flag. From then on every instruction ends in the handler. When the code has left its
//! addresses, the handler puts the test's own registers back.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Once;

/// `EFLAGS.TF`.
const TRAP: i64 = 0x100;
/// The flags that arithmetic sets, and the direction of string instructions.
pub(crate) const FLAGS: i64 = 0xcd5;
/// Maximum number of instructions of a run. A longer run counts as endless.
const MAX_STEPS: usize = 1_000;

/// Registers as `ucontext_t` has them, by `libc::REG_…`.
pub(crate) type Registers = [i64; 23];

/// What ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The next instruction lies elsewhere.
    Left,
    /// An instruction raised this signal.
    Fault(i32),
    /// It went on for too long.
    Endless,
}

struct Run {
    registers: Registers,
    inside: Vec<Range<u64>>,
    /// For each breakpoint: where a copy of the instruction under it lies.
    copies: HashMap<u64, u64>,
    home: Registers,
    has_started: bool,
    steps: usize,
    end: Option<End>,
}

thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
}

/// Runs from `registers` on for as long as the next instruction lies `inside`. At an `int3` of
/// `copies` it goes on with that copy, as the kernel does for uprobes.
pub(crate) fn run(
    registers: &mut Registers,
    inside: &[Range<u64>],
    copies: &HashMap<u64, u64>,
) -> End {
    prepare();
    RUN.set(Some(Run {
        registers: *registers,
        inside: inside.to_vec(),
        copies: copies.clone(),
        home: [0; 23],
        has_started: false,
        steps: 0,
        end: None,
    }));
    // SAFETY: the handler returns here with all registers as they are now.
    unsafe { std::arch::asm!("int3") };
    let run = RUN.take().unwrap();
    *registers = run.registers;
    run.end.unwrap()
}

/// A stack for the handler, which must not use the one that the code runs on, and the handler
/// itself.
fn prepare() {
    static HANDLER: Once = Once::new();
    thread_local! {
        static STACK: RefCell<Vec<u8>> = RefCell::new(vec![0; 1 << 16]);
    }
    HANDLER.call_once(|| {
        for signal in [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            // SAFETY: all zero is a value of it.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler touches nothing that the interrupted code uses.
            assert_eq!(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) }, 0);
        }
    });
    STACK.with_borrow_mut(|stack| {
        let stack =
            libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        // SAFETY: the memory lives as long as the thread.
        assert_eq!(unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) }, 0);
    });
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands out both for the time of the handler.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // SAFETY: as above.
    let code = unsafe { (*info).si_code };
    let registers = &mut context.uc_mcontext.gregs;
    let is_ours = RUN.try_with(|run| match run.try_borrow_mut().as_deref_mut() {
        Ok(Some(run)) => {
            run.advance(signal, code, registers);
            true
        }
        _ => false,
    });
    if is_ours != Ok(true) {
        // SAFETY: the default action ends the process: this signal was not for us.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

impl Run {
    /// What the handler does: `registers` are those that the thread goes on with.
    fn advance(&mut self, signal: i32, code: i32, registers: &mut Registers) {
        if !self.has_started {
            self.has_started = true;
            self.home = *registers;
            let own = registers[libc::REG_CSGSFS as usize];
            *registers = self.registers;
            registers[libc::REG_CSGSFS as usize] = own;
        } else if self.end.is_some() {
            return;
        } else if signal != libc::SIGTRAP {
            return self.finish(End::Fault(signal), registers);
        } else if code == libc::SI_KERNEL {
            let address = registers[libc::REG_RIP as usize] as u64 - 1;
            match self.copies.get(&address) {
                Some(copy) => registers[libc::REG_RIP as usize] = *copy as i64,
                None => return self.finish(End::Fault(signal), registers),
            }
        }
        let next = registers[libc::REG_RIP as usize] as u64;
        self.steps += 1;
        if !self.inside.iter().any(|range| range.contains(&next)) {
            self.finish(End::Left, registers);
        } else if self.steps > MAX_STEPS {
            self.finish(End::Endless, registers);
        } else {
            registers[libc::REG_EFL as usize] |= TRAP;
        }
    }

    fn finish(&mut self, end: End, registers: &mut Registers) {
        self.registers = *registers;
        self.registers[libc::REG_EFL as usize] &= !TRAP;
        self.end = Some(end);
        *registers = self.home;
    }
}
