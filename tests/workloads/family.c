/* Every C function of the malloc family, a few hundred times, under whatever allocator is in force.
 * What is held at the end is counted per function. No allocation happens outside the counts. */
#include "protocol.h"
#include <malloc.h>

enum { PLAIN, ZEROED, GROWN, ALIGNED, CHOSEN, PAGES, FUNCTIONS };
static struct row rows[FUNCTIONS] = {
    {.name = "by_malloc"}, {.name = "by_calloc"}, {.name = "by_realloc"},
    {.name = "by_aligned_alloc"}, {.name = "by_posix_memalign"}, {.name = "by_valloc"},
};

static void *count(int f, void *p, size_t size) {
    if (!p) _exit(3);
    keep(p);
    add(&rows[f].alloc, size);
    return p;
}

DISTINCT void *by_malloc(size_t size) { return count(PLAIN, malloc(size), size); }

DISTINCT void *by_calloc(size_t members, size_t size) {
    return count(ZEROED, calloc(members, size), members * size);
}

DISTINCT void *by_realloc(void *old, size_t size) { return count(GROWN, realloc(old, size), size); }

DISTINCT void *by_aligned_alloc(size_t alignment, size_t size) {
    return count(ALIGNED, aligned_alloc(alignment, size), size);
}

DISTINCT void *by_posix_memalign(size_t alignment, size_t size) {
    void *p = NULL;
    if (posix_memalign(&p, alignment, size)) p = NULL;
    return count(CHOSEN, p, size);
}

DISTINCT void *by_valloc(size_t size) { return count(PAGES, valloc(size), size); }

/* Every third block is held. */
static void settle(int f, int i, void *p, size_t size) {
    if (i % 3) free(p);
    else add(&rows[f].live, size);
}

int main(void) {
    sampling_interval(1);
    await_go();
    for (int i = 0; i < 60; i++) {
        size_t size = (size_t)1 + (size_t)i * 37, alignment = (size_t)8 << i % 8;
        settle(PLAIN, i, by_malloc(size), size);
        settle(ZEROED, i, by_calloc(3, size), 3 * size);
        size_t whole = (size + alignment) & ~(alignment - 1);
        settle(ALIGNED, i, by_aligned_alloc(alignment, whole), whole);
        settle(CHOSEN, i, by_posix_memalign(alignment, size), size);
        settle(PAGES, i, by_valloc(size), size);
        /* From nothing, in place or not, smaller, and by a lot. */
        void *p = by_realloc(NULL, size);
        p = by_realloc(p, size + 8);
        p = by_realloc(p, size / 2 + 1);
        p = by_realloc(p, size * 100);
        settle(GROWN, i, p, size * 100);
    }
    /* A large one, followed to its return in any case, and one that fails. */
    settle(PLAIN, 0, by_malloc(3 << 20), 3 << 20);
    volatile size_t huge = (size_t)1 << 62;
    keep(malloc(huge));
    free(NULL);
    say_truth(rows, FUNCTIONS);
    await_line();
    return 0;
}
