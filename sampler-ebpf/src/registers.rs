//! A probed call: its registers, arguments and cookie.

use crate::settings;
use aya_ebpf::EbpfContext as _;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::{
    bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_get_func_ip, bpf_tail_call,
};
use aya_ebpf::programs::ProbeContext;
use sampler_common::wire::{Cookie, PendingKey};

/// A hit of a probe.
pub struct Call {
    context: ProbeContext,
}

/// The caller's frame as it is after the return of the call.
pub struct Frame {
    /// Return address.
    pub ip: u64,
    /// Stack pointer behind the return address.
    pub sp: u64,
    /// Whether the call has yet to begin: the registers are those of the call's entry.
    pub at_entry: bool,
}

impl Call {
    /// Wraps the context that the kernel passes.
    #[inline(always)]
    pub fn new(context: *mut c_void) -> Call {
        Call { context: ProbeContext::new(context) }
    }

    /// [`Call::new`] in the main function of a program. The tail call in it never runs. The
    /// verifier gives a program with a tail call no private stacks (Linux 6.13).
    ///
    /// A private stack exists once for each program and CPU. A preempted program and the next one
    /// on its CPU would both write to it.
    #[inline(always)]
    pub fn in_main(context: *mut c_void) -> Call {
        if settings::tail_call() != 0 {
            // SAFETY: never runs; the verifier knows the setting, and removes the call.
            unsafe { bpf_tail_call(context, core::ptr::null_mut(), 0) };
        }
        Call::new(context)
    }

    /// The context, for helpers that want it.
    #[inline(always)]
    pub fn raw(&self) -> *mut c_void {
        self.context.as_ptr()
    }

    /// The context, for the log.
    #[cfg(feature = "log")]
    #[inline(always)]
    pub fn context(&self) -> &ProbeContext {
        &self.context
    }

    /// Returns `value`, about which the verifier then knows nothing. So the verifier checks the
    /// following code once, and not once for each path to it.
    #[inline(always)]
    pub fn unknown(&self, value: u64) -> u64 {
        // SAFETY: a field of the task's registers, the context of a uprobe program.
        let ip = unsafe { &raw const (*self.context.regs).rip };
        // SAFETY: as above; volatile, or the compiler would see that both values are one.
        let (once, twice) = unsafe { (core::ptr::read_volatile(ip), core::ptr::read_volatile(ip)) };
        value ^ once as u64 ^ twice as u64
    }

    /// Whether a session program runs at the entry: at the entry the instruction pointer is the
    /// probe's address.
    #[inline(always)]
    pub fn is_entry(&self) -> bool {
        self.function() == self.ip()
    }

    /// Address of the probe.
    #[inline(always)]
    pub fn function(&self) -> u64 {
        // SAFETY: the helper takes the program's own context.
        unsafe { bpf_get_func_ip(self.raw()) }
    }

    /// The cookie of the link: process slot and role.
    #[inline(always)]
    pub fn cookie(&self) -> Cookie {
        // SAFETY: the helper takes the program's own context.
        Cookie(unsafe { bpf_get_attach_cookie(self.raw()) })
    }

    /// `bpf_get_current_pid_tgid()`.
    #[inline(always)]
    pub fn thread(&self) -> u64 {
        bpf_get_current_pid_tgid()
    }

    /// All arguments that arrive in registers, and two more words of 0. The array is on the stack:
    /// the compiler makes a computed offset of a choice between registers, and the verifier accepts
    /// no computed offset into the context.
    #[inline(always)]
    pub fn arguments(&self) -> [u64; 8] {
        [
            self.argument0(),
            self.argument1(),
            self.argument2(),
            self.argument3(),
            self.argument4(),
            self.argument5(),
            0,
            0,
        ]
    }

    /// The calling process.
    #[inline(always)]
    pub fn pid(&self) -> u32 {
        (self.thread() >> 32) as u32
    }

    /// An argument by its number; 0 if it does not arrive in a register.
    #[inline(always)]
    pub fn argument(&self, number: u8) -> u64 {
        argument(self.raw(), number)
    }

    /// The caller's frame, at the return of the call.
    #[inline(always)]
    pub fn returned(&self) -> Frame {
        Frame { ip: self.ip(), sp: self.sp(), at_entry: false }
    }

    /// Key under which the entry of a call stores its data and the return finds them.
    #[inline(always)]
    pub fn pending_key(&self, return_slot: u64) -> PendingKey {
        PendingKey { thread: self.thread(), return_slot }
    }
}

/// [`Call::argument`], verified once for all callers.
#[inline(never)]
fn argument(context: *mut c_void, number: u8) -> u64 {
    let call = Call::new(context);
    let arguments = call.arguments();
    // SAFETY: reads a local variable; volatile, so that the mask stays.
    let number = unsafe { core::ptr::read_volatile(&raw const number) } as usize & 7;
    // SAFETY: the index is less than 8.
    unsafe { core::ptr::read_volatile((&raw const arguments).cast::<u64>().add(number)) }
}

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {
        impl Call {$(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name(&self) -> u64 {
                // SAFETY: the context of a uprobe program is the task's registers.
                unsafe { (*self.context.regs).$field as u64 }
            }
        )*}
    };
}

registers! {
    /// First argument.
    argument0 = rdi;
    /// Second argument.
    argument1 = rsi;
    /// Third argument.
    argument2 = rdx;
    /// Fourth argument.
    argument3 = rcx;
    /// Fifth argument.
    argument4 = r8;
    /// Sixth argument.
    argument5 = r9;
    /// Return value.
    result = rax;
    /// Instruction pointer.
    ip = rip;
    /// Stack pointer.
    sp = rsp;
    /// Frame pointer.
    bp = rbp;
}
