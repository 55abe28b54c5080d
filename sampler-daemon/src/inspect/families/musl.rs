//! musl, shared and static. `calloc` calls `malloc`. `posix_memalign`, `memalign` and `valloc` end
//! in `aligned_alloc`. `realloc` does everything itself (src/malloc of musl 1.2.3). The libc's own
//! allocations by `__libc_malloc` are not the program's.

use crate::inspect::allocator::family::Family;

pub(in crate::inspect) const MUSL: Family = Family {
    name: "musl",
    unique_names: &["__libc_malloc_impl", "__malloc_allzerop", "__simple_malloc", "__malloc0"],
    entries: &[],
    behind_new: &[],
};
