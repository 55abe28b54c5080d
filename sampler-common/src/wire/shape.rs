//! Where a probed function's arguments are, in the spare bits of the cookie.

use super::Role;

/// The places of a function's arguments.
///
/// A shape has 24 bits. Bit 23 says that the function does all of its work itself. As a
/// counterexample, glibc's `realloc(NULL, n)` calls `malloc`, whose probe is hit. Three fields of 3
/// bits each hold the number of an argument, or [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Shape(pub u32);

/// In place of an argument's number: the function has no such argument.
pub const NONE: u8 = 7;

/// Number of arguments that are passed in registers.
pub const MAX_ARGUMENTS: u8 = 6;

const OWN: u32 = 1 << 23;

impl Shape {
    /// The arguments of the role's prototype, with glibc's division of work.
    pub const DEFAULT: Shape = Shape(0);

    /// Makes a shape from the numbers of three arguments: the size, the count, and the pointer. If
    /// there is a count, the size is that of one unit. The pointer is the old block, the block to
    /// free, or where the new block's address goes.
    pub const fn new(size: u8, count: u8, pointer: u8) -> Shape {
        Shape(OWN | size as u32 & 7 | (count as u32 & 7) << 3 | (pointer as u32 & 7) << 6)
    }

    /// The arguments of a role's prototype; all 0 for roles whose arguments are not looked up
    /// (`malloc`, `free`, `operator new`).
    pub const fn of(role: Role) -> Shape {
        let own = match role {
            Role::Malloc | Role::Free | Role::New | Role::OtelAlloc | Role::OtelFree => {
                return Shape::DEFAULT;
            }
            Role::LibraryEnded | Role::Map | Role::Unmap | Role::Remap | Role::MoveBreak => {
                return Shape::DEFAULT;
            }
            Role::Calloc => Shape::new(1, 0, NONE),
            Role::Realloc => Shape::new(1, NONE, 0),
            Role::AlignedAlloc => Shape::new(1, NONE, NONE),
            Role::PosixMemalign => Shape::new(2, NONE, 0),
        };
        Shape(own.0 & !OWN)
    }

    /// Whether the function does all of its work itself, and its arguments may be anywhere.
    #[inline(always)]
    pub const fn is_own(self) -> bool {
        self.0 & OWN != 0
    }

    /// Number of the argument with the size.
    #[inline(always)]
    pub const fn size(self) -> u8 {
        (self.0 & 7) as u8
    }

    /// Number of the argument with the count, or [`NONE`].
    #[inline(always)]
    pub const fn count(self) -> u8 {
        (self.0 >> 3 & 7) as u8
    }

    /// Number of the argument with the pointer, or [`NONE`].
    #[inline(always)]
    pub const fn pointer(self) -> u8 {
        (self.0 >> 6 & 7) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cookie;
    use super::*;

    #[test]
    fn a_cookie_carries_the_shape() {
        let shape = Shape::new(3, NONE, 1);
        let cookie = Cookie::shaped(9, Role::Realloc, shape);
        assert_eq!((cookie.slot(), cookie.role(), cookie.shape()), (9, 3, shape));
        assert_eq!((shape.size(), shape.count(), shape.pointer()), (3, NONE, 1));
        assert!(shape.is_own() && !cookie.is_plain_malloc());
        assert!(!Cookie::new(9, Role::Malloc).shape().is_own());
        assert!(Cookie::new(u32::MAX, Role::Malloc).is_plain_malloc());
        assert!(!Cookie::shaped(9, Role::Malloc, Shape::new(0, NONE, NONE)).is_plain_malloc());
        let calloc = Cookie::new(9, Role::Calloc);
        assert!(!calloc.is_plain_malloc() && !calloc.shape().is_own());
        assert!(calloc.is_plain(Role::Calloc) && !cookie.is_plain(Role::Realloc));
        assert_eq!((calloc.shape().size(), calloc.shape().count()), (1, 0));
        assert_eq!(Cookie::new(9, Role::PosixMemalign).shape().pointer(), 0);
    }
}
