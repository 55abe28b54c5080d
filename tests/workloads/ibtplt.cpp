// An allocator whose operators call its `malloc` and `free` through the procedure linkage table. Built with
// `-fcf-protection -Wl,-z,ibtplt`, the table's jumps stand behind `endbr64`. It only gives memory out.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

static char memory[64 << 20] __attribute__((aligned(16)));
static std::size_t used;

// The size is before the block.
extern "C" void *malloc(std::size_t size) {
    std::size_t at = __atomic_fetch_add(&used, (size + 31) & ~std::size_t{15}, __ATOMIC_RELAXED);
    if (at + size + 32 > sizeof memory) return nullptr;
    std::memcpy(memory + at, &size, sizeof size);
    return memory + at + 16;
}
extern "C" void free(void *block) { __asm__ volatile("" : : "r"(block) : "memory"); }
extern "C" void *calloc(std::size_t count, std::size_t size) { return malloc(count * size); }
extern "C" void *realloc(void *old, std::size_t size) {
    void *block = malloc(size);
    std::size_t before = 0;
    if (old) std::memcpy(&before, static_cast<char *>(old) - 16, sizeof before);
    if (block && old) std::memcpy(block, old, before < size ? before : size);
    return block;
}
// jemalloc is recognized by this function.
extern "C" int mallctl() { return 0; }

void *operator new(std::size_t size) {
    if (void *block = malloc(size)) return block;
    throw std::bad_alloc();
}
void *operator new[](std::size_t size) {
    if (void *block = malloc(size)) return block;
    throw std::bad_alloc();
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return malloc(size); }
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return malloc(size); }
void operator delete(void *block) noexcept { free(block); }
void operator delete[](void *block) noexcept { free(block); }
void operator delete(void *block, std::size_t) noexcept { free(block); }
void operator delete[](void *block, std::size_t) noexcept { free(block); }
void operator delete(void *block, const std::nothrow_t &) noexcept { free(block); }
void operator delete[](void *block, const std::nothrow_t &) noexcept { free(block); }
