/* A program that has an allocator with mimalloc's names, which never reuses memory. The real `mi_new` may throw, so the
 * in-process sampler cannot follow it. Only what comes from `malloc` is counted. */
#include "protocol.h"
#include <malloc.h>

static char memory[1 << 20];
static size_t used;

static void *take(size_t size) {
    void *p = memory + used;
    used += (size + 15) & ~(size_t)15;
    return p;
}

DISTINCT void *mi_malloc(size_t size) { return take(size); }
DISTINCT void *mi_new(size_t size) { return take(size); }
DISTINCT void mi_free(void *p) { keep(p); }

/* mimalloc is recognized by this function. */
DISTINCT void *_mi_malloc_generic(void) { return NULL; }

int main(void) {
    static struct row by_malloc = {.name = "main"};
    sampling_interval(1);
    keep(_mi_malloc_generic());
    await_go();
    for (int i = 0; i < 100; i++) {
        keep(mi_new(64));
        mi_free(mi_malloc(64));
        void *p = malloc(64);
        keep(p);
        free(p);
        add(&by_malloc.alloc, 64);
    }
    say_truth(&by_malloc, 1);
    await_line();
    return 0;
}
