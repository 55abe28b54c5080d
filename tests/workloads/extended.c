/* extended: allocates and frees by jemalloc's own functions and by malloc, each block by the one and its end by the other.
 * It runs with jemalloc as its malloc. */
#include "protocol.h"
#include <dlfcn.h>

enum { COUNT = 60, ALIGNED = 6 /* MALLOCX_LG_ALIGN(6) */ };

static struct row rows[] = {{.name = "by_malloc"}, {.name = "by_mallocx"}, {.name = "by_rallocx"}};
static void *(*extended_malloc)(size_t, int);
static void *(*extended_realloc)(void *, size_t, int);
static void (*extended_free)(void *, int);
static void (*sized_free)(void *, size_t, int);

static void *took(struct row *of, void *p, size_t size, int is_kept) {
    if (!p) _exit(3);
    memset(p, 7, size);
    add(&of->alloc, size);
    if (is_kept) add(&of->live, size);
    return p;
}

DISTINCT void by_malloc(size_t size, int is_kept) {
    void *p = took(&rows[0], malloc(size), size, is_kept);
    if (!is_kept) sized_free(p, size, 0);
}

DISTINCT void by_mallocx(size_t size, int is_kept) {
    void *p = took(&rows[1], extended_malloc(size, ALIGNED), size, is_kept);
    if (!is_kept) extended_free(p, ALIGNED);
}

DISTINCT void by_rallocx(size_t size, int is_kept) {
    void *p = took(&rows[2], extended_malloc(size, 0), size, 0);
    p = took(&rows[2], extended_realloc(p, size * 3, 0), size * 3, is_kept);
    if (!is_kept) free(p);
}

static void *function(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) _exit(4);
    return found;
}

int main(void) {
    extended_malloc = (void *(*)(size_t, int))function("mallocx");
    extended_realloc = (void *(*)(void *, size_t, int))function("rallocx");
    extended_free = (void (*)(void *, int))function("dallocx");
    sized_free = (void (*)(void *, size_t, int))function("sdallocx");
    sampling_interval(1);
    await_go();
    for (int i = 0; i < COUNT; i++) {
        size_t size = 10 + (size_t)i * 43;
        by_malloc(size, i % 3 == 0);
        by_mallocx(size, i % 3 == 0);
        by_rallocx(size, i % 3 == 0);
    }
    say_truth(rows, 3);
    await_line();
    return 0;
}
