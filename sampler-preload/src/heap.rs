//! Functions of an allocator that programs call past `malloc`, by names of its own: `_rjem_malloc`
//! and `_rjem_sdallocx` of jemalloc, `mi_malloc_aligned` and `mi_free` of mimalloc. Such an
//! allocator is the global allocator of many Rust programs.
//!
//! Only an injected image uses them. The loader gives each function of such an allocator one of the
//! slots below: a slot of the shape that the function's parameters have. A slot is called as
//! `sampler_preload_heap_SHAPE_NUMBER`. All blocks are in the one table, by their addresses, so a
//! slot needs to know nothing of its allocator.
//!
//! As in [`crate::entry`], the few calls that are sampled leave the hot function by a jump. One cold
//! function serves all slots of a kind.

use crate::inject::Function;
use crate::sample::{self, FILTER, charge, decide};
use crate::thread::{Charged, marked_call};
use core::arch::naked_asm;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A larger request fails in every allocator (`PTRDIFF_MAX`).
const MAX_REQUEST_BYTES: usize = isize::MAX as usize;
/// Low bits of a slot's address, which are 0 and can hold a [`Charged`].
const CHARGED: usize = 3;
/// Parameters that are forwarded, as many as the largest of the functions has.
type Arguments = [usize; 5];
type Any = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> usize;
/// A cold function. Its last parameter is a word of [`Slot::with`].
type Sampled = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Where a function has its parameters, by their numbers.
#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    count: Option<usize>,
    /// The old block of a function like `realloc`.
    block: usize,
}

impl Shape {
    /// `malloc(size)`, with the size at another place.
    const fn sized(size: usize) -> Shape {
        Shape { size, count: None, block: 0 }
    }

    /// `calloc(count, size)`, with the count at another place.
    const fn counted(count: usize) -> Shape {
        Shape { size: count + 1, count: Some(count), block: 0 }
    }

    /// `realloc(block, size)`, with the block at another place.
    const fn moved(block: usize) -> Shape {
        Shape { size: block + 1, count: None, block }
    }

    /// `reallocarray(block, count, size)`
    const fn array() -> Shape {
        Shape { size: 2, count: Some(1), block: 0 }
    }

    /// Bytes of a request; `None`: more than there can be.
    #[inline(always)]
    fn size(self, arguments: Arguments) -> Option<usize> {
        match self.count {
            Some(count) => at(arguments, count).checked_mul(at(arguments, self.size)),
            None => Some(at(arguments, self.size)),
        }
    }
}

/// An argument. Nothing here may panic, and an index might.
#[inline(always)]
fn at(arguments: Arguments, number: usize) -> usize {
    arguments.get(number).copied().unwrap_or(0)
}

/// The function that a slot serves.
#[repr(C, align(16))]
struct Slot {
    /// Where calls go on to: the function, or the slot's trampoline.
    next: AtomicPtr<c_void>,
    /// The function that the trampoline calls.
    marked: AtomicPtr<c_void>,
    shape: Shape,
}

const _: () = assert!(align_of::<Slot>() > CHARGED);

impl Slot {
    const fn new(shape: Shape) -> Slot {
        Slot { next: AtomicPtr::new(null_mut()), marked: AtomicPtr::new(null_mut()), shape }
    }

    #[inline(always)]
    unsafe fn forward(&self, [first, second, third, fourth, fifth]: Arguments) -> usize {
        // SAFETY: the loader has stored a function with at most these parameters, before any call
        // can arrive.
        let next = unsafe { core::mem::transmute::<*mut c_void, Any>(self.next.load(Relaxed)) };
        // SAFETY: forwards the call.
        unsafe { next(first, second, third, fourth, fifth) }
    }

    /// The slot's address, with the result of charging in its low bits.
    #[inline(always)]
    fn with(&'static self, charged: Charged) -> usize {
        &raw const *self as usize | charged as usize
    }

    fn of(word: usize) -> (&'static Slot, Charged) {
        let charged = match word & CHARGED {
            0 => Charged::Idle,
            1 => Charged::Ends,
            2 => Charged::Not,
            _ => Charged::RunsOn,
        };
        // SAFETY: a word of [`Slot::with`], which is the address of a static.
        (unsafe { &*((word & !CHARGED) as *const Slot) }, charged)
    }
}

/// Charges a request, and goes on to `sampled` if the request may be sampled.
#[inline(always)]
unsafe fn request(
    shape: Shape,
    slot: &'static Slot,
    arguments: Arguments,
    sampled: Sampled,
) -> usize {
    let [first, second, third, fourth, fifth] = arguments;
    match shape.size(arguments).and_then(charge) {
        // Not sampled; or the request fails, and the allocator reports the failure.
        // SAFETY: forwards the call.
        None => unsafe { slot.forward(arguments) },
        // SAFETY: the same call.
        Some(charged) => unsafe {
            sampled(first, second, third, fourth, fifth, slot.with(charged))
        },
    }
}

/// A function that allocates.
#[inline(always)]
unsafe fn allocate(shape: Shape, slot: &'static Slot, arguments: Arguments) -> usize {
    // SAFETY: the same call.
    unsafe { request(shape, slot, arguments, allocate_sampled) }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_heap_malloc"))]
unsafe extern "C" fn allocate_sampled(
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    slot: usize,
) -> usize {
    let arguments = [first, second, third, fourth, fifth];
    let (slot, charged) = Slot::of(slot);
    let size = slot.shape.size(arguments).unwrap_or(0);
    let rate = decide(size, charged);
    // SAFETY: forwards the call.
    let block = unsafe { slot.forward(arguments) };
    if let Some(rate) = rate {
        sample::begin(block, size, rate);
    }
    block
}

/// `posix_memalign(place, alignment, size)`
#[inline(always)]
unsafe fn store(shape: Shape, slot: &'static Slot, arguments: Arguments) -> usize {
    // SAFETY: the same call.
    unsafe { request(shape, slot, arguments, store_sampled) }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_heap_posix_memalign"))]
unsafe extern "C" fn store_sampled(
    place: usize,
    alignment: usize,
    size: usize,
    fourth: usize,
    fifth: usize,
    slot: usize,
) -> usize {
    let (slot, charged) = Slot::of(slot);
    let rate = decide(size, charged);
    // SAFETY: forwards the call.
    let error = unsafe { slot.forward([place, alignment, size, fourth, fifth]) };
    if let Some(rate) = rate {
        // The function returns an `int`.
        let block = match error as u32 {
            // SAFETY: the allocator has just written it.
            0 => unsafe { (place as *const usize).read() },
            _ => 0,
        };
        sample::begin(block, size, rate);
    }
    error
}

/// A function like `realloc`.
#[inline(always)]
unsafe fn change(shape: Shape, slot: &'static Slot, arguments: Arguments) -> usize {
    let [first, second, third, fourth, fifth] = arguments;
    let charged = match shape.size(arguments).and_then(charge) {
        Some(charged) => charged,
        None if FILTER.may_hold(at(arguments, shape.block)) => Charged::RunsOn,
        // SAFETY: forwards the call.
        None => return unsafe { slot.forward(arguments) },
    };
    // SAFETY: the same call.
    unsafe { change_sampled(first, second, third, fourth, fifth, slot.with(charged)) }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_heap_realloc"))]
unsafe extern "C" fn change_sampled(
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    slot: usize,
) -> usize {
    let arguments = [first, second, third, fourth, fifth];
    let (slot, charged) = Slot::of(slot);
    // A request that is larger than possible fails, and leaves the block as it is.
    let Some(size) = slot.shape.size(arguments).filter(|size| *size <= MAX_REQUEST_BYTES) else {
        if decide(usize::MAX, charged).is_some() {
            sample::failed();
        }
        // SAFETY: forwards the call.
        return unsafe { slot.forward(arguments) };
    };
    let rate = decide(size, charged);
    let block = at(arguments, slot.shape.block);
    let of = sample::begin_move(block);
    // SAFETY: forwards the call.
    let moved = unsafe { slot.forward(arguments) };
    if let Some(of) = of {
        // With a size of 0 the block ends, whatever the function returns.
        sample::end_move(of, block, moved == 0 && size != 0);
    }
    if let Some(rate) = rate {
        sample::begin(moved, size, rate);
    }
    moved
}

/// A function like `free`. The block is its first parameter.
#[inline(always)]
unsafe fn release(_: Shape, slot: &'static Slot, arguments: Arguments) -> usize {
    let [block, second, third, fourth, fifth] = arguments;
    if FILTER.may_hold(block) {
        let slot = slot.with(Charged::RunsOn);
        // SAFETY: the same call.
        return unsafe { release_sampled(block, second, third, fourth, fifth, slot) };
    }
    // SAFETY: forwards the call.
    unsafe { slot.forward(arguments) }
}

#[cold]
#[inline(never)]
#[cfg_attr(feature = "library", unsafe(export_name = "__sampler_preload_heap_free"))]
unsafe extern "C" fn release_sampled(
    block: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    slot: usize,
) -> usize {
    // The sample ends first: afterwards the allocator may give the block's address to another
    // thread.
    sample::end(block);
    // SAFETY: forwards the call.
    unsafe { Slot::of(slot).0.forward([block, second, third, fourth, fifth]) }
}

/// `kind, shape: numbered slots`
macro_rules! slots {
    ($($kind:ident, $shape:expr => $($name:ident)*;)*) => {
        $($(
            #[doc = concat!("The slot `", stringify!($name), "`.")]
            pub mod $name {
                use super::*;

                pub(super) static SLOT: Slot = Slot::new($shape);

                /// The function that a hook leads to.
                ///
                /// # Safety
                /// As for the function that the slot serves.
                #[cfg_attr(feature = "library", unsafe(export_name = concat!("sampler_preload_heap_", stringify!($name))))]
                pub unsafe extern "C" fn entry(
                    first: usize,
                    second: usize,
                    third: usize,
                    fourth: usize,
                    fifth: usize,
                ) -> usize {
                    // SAFETY: the caller's conditions.
                    unsafe { $kind($shape, &SLOT, [first, second, third, fourth, fifth]) }
                }

                /// Calls the slot's function with a mark. All parameters stay in their registers.
                #[unsafe(naked)]
                pub(super) unsafe extern "C" fn trampoline() {
                    naked_asm!(
                        ".cfi_startproc",
                        "mov r11, qword ptr [rip + {slot} + {at}]",
                        "jmp {marked}",
                        ".cfi_endproc",
                        slot = sym SLOT,
                        at = const offset_of!(Slot, marked),
                        marked = sym marked_call,
                    )
                }
            }
        )*)*

        /// The words that a loader fills in.
        pub(crate) const SLOTS: [Function; [$($(stringify!($name),)*)*].len()] = [$($(Function::new(
            concat!("sampler_preload_heap_", stringify!($name)),
            &raw const $name::SLOT.next,
            &raw const $name::SLOT.marked,
            $name::trampoline,
        ),)*)*];
    };
}

slots! {
    allocate, Shape::sized(0) =>
        sized_0 sized_1 sized_2 sized_3 sized_4 sized_5 sized_6 sized_7 sized_8 sized_9;
    allocate, Shape::sized(1) =>
        second_0 second_1 second_2 second_3 second_4 second_5 second_6 second_7;
    allocate, Shape::counted(0) => counted_0 counted_1 counted_2;
    allocate, Shape::counted(1) => second_counted_0 second_counted_1;
    store, Shape::sized(2) => stored_0;
    change, Shape::moved(0) => moved_0 moved_1 moved_2 moved_3;
    change, Shape::moved(1) => second_moved_0 second_moved_1 second_moved_2;
    change, Shape::array() => array_0 array_1;
    release, Shape::sized(0) => freed_0 freed_1 freed_2 freed_3 freed_4 freed_5;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SETTINGS;
    use crate::thread::Countdown;
    use sampler_common::sampling::{Cell as _, Rate};

    std::thread_local! {
        /// What this thread's last call of [`takes`] got.
        static LAST: core::cell::Cell<Arguments> = const { core::cell::Cell::new([0; 5]) };
    }

    unsafe extern "C" fn takes(
        first: usize,
        second: usize,
        third: usize,
        fourth: usize,
        fifth: usize,
    ) -> usize {
        LAST.set([first, second, third, fourth, fifth]);
        usize::from(crate::inside::is_inside())
    }

    fn serve(slot: &Slot) {
        slot.next.store(takes as Any as *mut c_void, Relaxed);
    }

    fn rate() -> Rate {
        SETTINGS.begin(Rate::from_interval(4096).unwrap());
        SETTINGS.rate()
    }

    #[test]
    fn a_slot_forwards_all_arguments_with_and_without_a_mark() {
        let all = [64, 3, 5, 7, 11];
        let call = |[first, second, third, fourth, fifth]: Arguments| {
            // SAFETY: leads to `takes`.
            unsafe { second_counted_1::entry(first, second, third, fourth, fifth) }
        };
        rate();
        let slot = &second_counted_1::SLOT;
        // A countdown that runs on, and one that ends.
        for left in [i64::MAX / 4, 1] {
            serve(slot);
            Countdown.swap(left);
            assert_eq!((call(all), LAST.get()), (0, all));
            slot.marked.store(takes as Any as *mut c_void, Relaxed);
            slot.next.store(second_counted_1::trampoline as *mut c_void, Relaxed);
            Countdown.swap(left);
            assert_eq!((call([1, 2, 3, 4, 5]), LAST.get()), (1, [1, 2, 3, 4, 5]));
        }
        Countdown.swap(0);
    }

    #[test]
    fn a_request_of_a_slot_is_charged_by_its_size() {
        let rate = rate();
        let start = i64::MAX / 4;
        [&moved_3::SLOT, &array_1::SLOT, &sized_9::SLOT].into_iter().for_each(serve);
        let calls: [(fn() -> usize, u64); 3] = [
            // SAFETY: leads to `takes`.
            (|| unsafe { sized_9::entry(48, 16, 0, 0, 0) }, 48),
            // SAFETY: as above.
            (|| unsafe { moved_3::entry(4096, 700, 0, 0, 0) }, 700),
            // SAFETY: as above.
            (|| unsafe { array_1::entry(4096, 3, 100, 0, 0) }, 300),
        ];
        for (call, bytes) in calls {
            Countdown.swap(start);
            call();
            let charged = start - Countdown.swap(0);
            assert_eq!(charged as u64, rate.charge(bytes), "{bytes}");
        }
    }

    #[test]
    fn a_slot_ends_a_sampled_block_once() {
        let block = 0x7000_1230;
        serve(&freed_4::SLOT);
        sample::begin(block, 48, Rate::ALWAYS);
        assert!(FILTER.may_hold(block));
        // SAFETY: leads to `takes`.
        unsafe { freed_4::entry(block, 48, 4, 0, 0) };
        assert!(!FILTER.may_hold(block) && LAST.get() == [block, 48, 4, 0, 0]);
    }
}
