/* A library with an arena of its own, which samples by itself: its caller says which allocations are sampled, and what they
 * stand for. Probes are skipped while nobody listens.
 */
#include "otel/otel_memory.h"

#define API __attribute__((noipa, visibility("default")))

static char arena[64 << 20] __attribute__((aligned(16)));
static size_t used;

/* weighted 0: not sampled. */
API void *arena_alloc(size_t size, size_t weighted) {
    void *p = arena + used;
    used = (used + size + 15) & ~(size_t)15;
    if (weighted && otel_memory_alloc_semaphore) FIRE_ALLOC(p, size, weighted);
    return p;
}

/* As a C compiler may have it: other places for the arguments. */
API void *arena_alloc_small(unsigned size, unsigned weighted) {
    volatile size_t on_stack = weighted;
    void *p = arena + used;
    used = (used + size + 15) & ~(size_t)15;
    if (otel_memory_alloc_semaphore)
        __asm__ volatile(NOTE("alloc", "8@%0 4@%k1 8@%2") : : "r"(p), "r"(size), "m"(on_stack) : "memory");
    return p;
}

/* Only of sampled blocks. */
API void arena_free(void *p) {
    if (otel_memory_free_semaphore) FIRE_FREE(p);
}

/* Reports an allocation with any numbers. */
API void arena_say(void *p, size_t size, size_t weighted) { FIRE_ALLOC(p, size, weighted); }

API unsigned arena_semaphores(void) {
    return (unsigned)otel_memory_alloc_semaphore + (unsigned)otel_memory_free_semaphore;
}
