// An allocator library that defines malloc and the operators, each of which allocates by itself: none calls another. Never gives memory back, and has
// none for requests of one size.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

static constexpr std::size_t bytes = std::size_t(1) << 32, refused = 6666;

static char *memory;
static std::size_t used;

__attribute__((always_inline)) static inline void *take(std::size_t size, std::size_t alignment) {
    if (size == refused) return nullptr;
    if (!memory) {
        void *all = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) abort();
        memory = static_cast<char *>(all);
    }
    std::size_t whole = (size + alignment + 31) & ~std::size_t(15);
    std::size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    if (whole > bytes || at + whole > bytes) abort();
    std::uintptr_t place = reinterpret_cast<std::uintptr_t>(memory + at) + 16;
    place = (place + alignment - 1) & -alignment;
    reinterpret_cast<std::size_t *>(place)[-1] = size;
    return reinterpret_cast<void *>(place);
}

extern "C" {
void *malloc(std::size_t size) noexcept { return take(size, 16); }
void free(void *) noexcept {}
void *calloc(std::size_t count, std::size_t size) noexcept { return take(count * size, 16); }
void *memalign(std::size_t alignment, std::size_t size) noexcept { return take(size, alignment); }
void *aligned_alloc(std::size_t alignment, std::size_t size) noexcept { return take(size, alignment); }
int posix_memalign(void **place, std::size_t alignment, std::size_t size) noexcept {
    return (*place = take(size, alignment)) ? 0 : ENOMEM;
}
void *realloc(void *block, std::size_t size) noexcept {
    void *moved = take(size, 16);
    if (!block || !moved) return moved;
    std::size_t before = static_cast<std::size_t *>(block)[-1];
    return std::memcpy(moved, block, before < size ? before : size);
}
}

__attribute__((always_inline)) static inline void *sure(void *block) {
    if (!block) throw std::bad_alloc();
    return block;
}

using std::align_val_t;
using std::nothrow_t;
using std::size_t;

void *operator new(size_t size) { return sure(take(size, 16)); }
void *operator new[](size_t size) { return sure(take(size, 16)); }
void *operator new(size_t size, const nothrow_t &) noexcept { return take(size, 16); }
void *operator new[](size_t size, const nothrow_t &) noexcept { return take(size, 16); }
void *operator new(size_t size, align_val_t of) { return sure(take(size, size_t(of))); }
void *operator new[](size_t size, align_val_t of) { return sure(take(size, size_t(of))); }
void *operator new(size_t size, align_val_t of, const nothrow_t &) noexcept { return take(size, size_t(of)); }
void *operator new[](size_t size, align_val_t of, const nothrow_t &) noexcept { return take(size, size_t(of)); }
void operator delete(void *) noexcept {}
void operator delete[](void *) noexcept {}
void operator delete(void *, size_t) noexcept {}
void operator delete[](void *, size_t) noexcept {}
void operator delete(void *, const nothrow_t &) noexcept {}
void operator delete[](void *, const nothrow_t &) noexcept {}
void operator delete(void *, align_val_t) noexcept {}
void operator delete[](void *, align_val_t) noexcept {}
void operator delete(void *, size_t, align_val_t) noexcept {}
void operator delete[](void *, size_t, align_val_t) noexcept {}
void operator delete(void *, align_val_t, const nothrow_t &) noexcept {}
void operator delete[](void *, align_val_t, const nothrow_t &) noexcept {}
