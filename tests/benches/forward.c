/* The least that a library in front of malloc can do: a jump through a pointer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *first_malloc(size_t);
static void first_free(void *);
static void *(*real_malloc)(size_t) = first_malloc;
static void (*real_free)(void *) = first_free;

static void *first_malloc(size_t size) {
    real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    return real_malloc(size);
}

static void first_free(void *block) {
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    real_free(block);
}

void *malloc(size_t size) { return real_malloc(size); }
void free(void *block) { real_free(block); }
