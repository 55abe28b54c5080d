//! The attach cookie: tells a program which process was hit, in which function, and how.

use super::{Role, Shape};

/// The attach cookie of a probe: process slot, role and argument places, without a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Cookie(pub u64);

/// Bit of the role's byte in a [`Cookie`]: the kernel single-steps the probed instruction.
const STEPPED: u8 = 0x80;

/// Bit of the role's byte in a [`Cookie`]: the probe lies in our own preloaded library.
const LIBRARY: u8 = 0x40;

/// In place of a slot in a [`Cookie`]: all processes share the link. The program looks the process
/// up in the map `TARGETS`.
pub const SHARED: u32 = u32::MAX;

/// In place of a role in `HITS`: hits of all allocating functions while the gate is not open.
const HITS_OUTSIDE: u32 = 0;

impl Cookie {
    /// The cookie of `role` in the process of `slot`.
    pub const fn new(slot: u32, role: Role) -> Cookie {
        Cookie::shaped(slot, role, Shape::DEFAULT)
    }

    /// The cookie at a USDT whose arguments are described by the [`super::Site`] with this number,
    /// or by [`super::Site::FUNCTION_REGISTERS`].
    pub const fn at_site(self, site: u32) -> Cookie {
        Cookie(self.0 | (site as u64) << 40)
    }

    /// The cookie in our own preloaded library, which limits its samples itself.
    pub const fn in_library(self) -> Cookie {
        Cookie(self.0 | (LIBRARY as u64) << 32)
    }

    /// Whether the probe lies in our own preloaded library.
    #[inline(always)]
    pub const fn is_in_library(self) -> bool {
        (self.0 >> 32) as u8 & LIBRARY != 0
    }

    /// Number of the [`super::Site`] that describes the arguments of a USDT.
    #[inline(always)]
    pub const fn site(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// The process slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// The cookie of a function whose arguments may differ from those of its role's prototype.
    pub const fn shaped(slot: u32, role: Role, shape: Shape) -> Cookie {
        let shape = if shape.is_own() { shape } else { Shape::of(role) };
        Cookie(slot as u64 | (role as u64) << 32 | (shape.0 as u64) << 40)
    }

    /// The cookie with another slot.
    #[inline(always)]
    pub const fn in_slot(self, slot: u32) -> Cookie {
        Cookie(self.0 >> 32 << 32 | slot as u64)
    }

    /// The cookie at an instruction that the kernel emulates, or else single-steps.
    pub const fn placed(self, emulated: bool) -> Cookie {
        if emulated { self } else { Cookie(self.0 | (STEPPED as u64) << 32) }
    }

    /// The number of the [`Role`].
    #[inline(always)]
    pub const fn role(self) -> u8 {
        (self.0 >> 32) as u8 & !(STEPPED | LIBRARY)
    }

    /// Whether the function maps memory or unmaps it ([`Role::is_mapping`]).
    #[inline(always)]
    pub const fn is_mapping(self) -> bool {
        self.role() >= Role::Map as u8
    }

    /// Index of the entry in `HITS`, within the slot, that counts the probe's hits.
    #[inline(always)]
    pub const fn counter(self) -> u32 {
        (self.0 >> 32) as u32 & 15 | self.counter_outside()
    }

    /// Index of the entry that counts the probe's hits while the gate is not open; all roles share
    /// it.
    #[inline(always)]
    pub const fn counter_outside(self) -> u32 {
        HITS_OUTSIDE | (self.0 >> 35) as u32 & 16
    }

    /// Places of the function's arguments.
    #[inline(always)]
    pub const fn shape(self) -> Shape {
        Shape((self.0 >> 40) as u32)
    }

    /// Whether the function is `malloc`, with malloc's own argument, at an instruction that the
    /// kernel emulates. Most calls by far are of this kind. They are counted by their outcome and
    /// not as hits.
    #[inline(always)]
    pub const fn is_uncounted(self) -> bool {
        self.0 >> 32 == Role::Malloc as u64
    }

    /// Whether the function is `malloc`, with malloc's own argument.
    #[inline(always)]
    pub const fn is_plain_malloc(self) -> bool {
        self.is_plain(Role::Malloc)
    }

    /// Whether the function is of `role`, with the arguments of its prototype and glibc's division
    /// of work.
    #[inline(always)]
    pub const fn is_plain(self, role: Role) -> bool {
        (self.0 >> 32) as u32 & !(STEPPED as u32) == (Cookie::new(0, role).0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HITS_PER_SLOT, NONE};
    use super::*;

    #[test]
    fn hits_are_counted_by_their_price() {
        let malloc = Cookie::new(9, Role::Malloc);
        let stepped = malloc.placed(false);
        assert!(malloc.is_uncounted() && !stepped.is_uncounted() && stepped.is_plain_malloc());
        let own = Cookie::shaped(9, Role::Malloc, Shape::new(0, NONE, NONE)).placed(false);
        assert!(!own.is_plain_malloc() && own.shape().is_own());
        let counters = |role| {
            let cookie = Cookie::new(u32::MAX, role);
            assert_eq!(
                (cookie.placed(false).role(), cookie.placed(false).slot()),
                (role as u8, u32::MAX)
            );
            assert!(
                cookie.placed(false).shape() == cookie.shape()
                    && cookie.placed(false).is_plain(role)
            );
            assert_eq!(cookie.placed(false).in_slot(7).counter(), cookie.placed(false).counter());
            [cookie.counter(), cookie.placed(false).counter()]
        };
        let at_site = Cookie::new(9, Role::OtelAlloc).at_site(5);
        let ours = at_site.in_library();
        assert!(ours.is_in_library() && !at_site.is_in_library());
        assert_eq!((ours.role(), ours.site(), ours.slot()), (Role::OtelAlloc as u8, 5, 9));
        assert_eq!(ours.counter(), at_site.counter());
        let counted = (0..16).filter_map(Role::from_number).flat_map(counters);
        let mut roles = (0..32).filter_map(Role::from_number);
        assert!(
            roles.all(|role| {
                Cookie::new(9, role).placed(false).is_mapping() == role.is_mapping()
            })
        );
        let outside = [malloc.counter_outside(), stepped.counter_outside()];
        let all: Vec<u32> = counted.chain(outside).collect();
        assert!(all.iter().all(|counter| *counter < HITS_PER_SLOT), "{all:?}");
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }
}
