//! Back-pressure in the kernel, applied at every sampled call and nowhere else. The rule is
//! [`sampler_common::sampling::ring_pressure`].

use crate::{atomic, maps, record, settings, target};
use sampler_common::limits::CLASSES;
use sampler_common::sampling::ring_pressure::level;
use sampler_common::sampling::{Design, Strategy};

/// Sets the design of a size class according to the bytes that wait in the ring. The design is in
/// force from the next call on.
#[inline(never)]
#[unsafe(export_name = "apply_ring_pressure")]
pub extern "C" fn apply(slot: u32, class: u32) -> u64 {
    let size = settings::pressure_ring_bytes();
    if size == 0 {
        return 0;
    }
    let Some(process) = maps::PROCESSES.get_ptr_mut(slot & target::SLOTS) else { return 0 };
    // SAFETY: a field of a map value. `ring_read` is read first: `ring_sent`, read later, is then
    // never less.
    let read = unsafe { core::ptr::read_volatile(&raw const (*process).ring_read) };
    // SAFETY: a field of a map value.
    let sent = unsafe { core::ptr::read_volatile(&raw const (*process).ring_sent) };
    let level = level(sent.wrapping_sub(read), record::waiting(), size);
    let class = class as usize & (CLASSES - 1);
    // SAFETY: a field of a map value.
    let wanted = unsafe { &raw const (*process).wanted };
    // SAFETY: the index is masked to the array's length.
    let wanted = unsafe { wanted.cast::<u64>().add(class) };
    // SAFETY: a field of a map value.
    let designs = unsafe { &raw mut (*process).designs };
    // SAFETY: the index is masked to the array's length.
    let design = unsafe { designs.cast::<u64>().add(class) };
    // SAFETY: an aligned field of a map value; the daemon may be writing it, hence volatile.
    let before = unsafe { core::ptr::read_volatile(wanted) };
    let new = Design::from_word(before).at_ring_level(level).word();
    // SAFETY: as above.
    let old = unsafe { core::ptr::read_volatile(design) };
    if old == new {
        return 0;
    }
    // SAFETY: a field of a map value.
    let levels = unsafe { &raw mut (*process).levels };
    // The level is set first: whoever sees the design finds its level.
    atomic::set(levels, 1 << (level & 63));
    let is_stride = Design::from_word(new).tag() == Strategy::Stride as u8;
    if is_stride == (new > old) {
        // SAFETY: a field of a map value.
        atomic::add(unsafe { &raw mut (*process).ring_raises }, 1);
    }
    // SAFETY: as above.
    unsafe { core::ptr::write_volatile(design, new) };
    // SAFETY: as above.
    let after = unsafe { core::ptr::read_volatile(wanted) };
    if after != before {
        // The daemon has changed `wanted` meanwhile: the daemon's design is restored.
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(design, after) };
    }
    0
}
