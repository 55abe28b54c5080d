/* An allocator library that has memalign and makes all others of it, malloc and free among them, by the names that it exports: each of them is a
 * call of the process's own memalign, aligned_alloc or realloc. Never gives memory back.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (1ul << 30)

static char *memory;
static size_t used;

void *memalign(size_t alignment, size_t size) {
    if (!memory) {
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
    }
    size_t whole = (size + alignment + 31) & ~15ul;
    size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    if (at + whole > BYTES) abort();
    uintptr_t place = ((uintptr_t)memory + at + 16 + alignment - 1) & -alignment;
    ((size_t *)place)[-2] = size;
    return (void *)place;
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

void *malloc(size_t size) { return aligned_alloc(16, size); }

void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *block, size_t size) {
    if (!size) return NULL;
    void *moved = malloc(size);
    if (!block) return moved;
    size_t before = ((size_t *)block)[-2];
    return memcpy(moved, block, before < size ? before : size);
}

void free(void *block) {
    if (block) realloc(block, 0);
}

int posix_memalign(void **place, size_t alignment, size_t size) {
    *place = memalign(alignment, size);
    return 0;
}

void *valloc(size_t size) { return memalign(4096, size); }
