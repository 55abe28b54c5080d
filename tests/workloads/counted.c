/* How many samples the preloaded library counts for each function of the family, while nobody listens: counted CALLS [LIBRARY…]. Prints a line with
 * its name for each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Word of sampler_preload_settings that counts samples that nobody received (sampler-preload/src/settings.rs). */
#define UNHEARD 8
#define SIZE 64

extern void *memalign(size_t, size_t), *valloc(size_t), *reallocarray(void *, size_t, size_t);

static void *volatile block;

static void by_malloc(void) { block = malloc(SIZE); }
static void by_calloc(void) { block = calloc(SIZE / 8, 8); }
static void by_realloc(void) { block = realloc(NULL, SIZE); }
static void by_reallocarray(void) { block = reallocarray(NULL, SIZE / 8, 8); }
static void by_aligned_alloc(void) { block = aligned_alloc(64, SIZE); }
static void by_memalign(void) { block = memalign(64, SIZE); }
static void by_valloc(void) { block = valloc(SIZE); }

static void by_posix_memalign(void) {
    void *place;
    if (posix_memalign(&place, 64, SIZE)) abort();
    block = place;
}

static const struct {
    const char *name;
    void (*run)(void);
} functions[] = {
    {"malloc", by_malloc},           {"calloc", by_calloc},     {"realloc", by_realloc},
    {"reallocarray", by_reallocarray}, {"memalign", by_memalign}, {"aligned_alloc", by_aligned_alloc},
    {"posix_memalign", by_posix_memalign}, {"valloc", by_valloc},
};

#define LIBRARIES 4
static const volatile uint64_t *settings[LIBRARIES];

static uint64_t samples(void) {
    uint64_t sum = 0;
    for (int i = 0; i < LIBRARIES; i++) sum += settings[i] ? settings[i][UNHEARD] : 0;
    return sum;
}

int main(int argc, char **argv) {
    /* One that this program has not made. */
    if (dlerror()) return 3;
    long calls = argc > 1 ? atol(argv[1]) : 1;
    /* The one that is found first, or several copies. */
    settings[0] = dlsym(RTLD_DEFAULT, "sampler_preload_settings");
    for (int i = 2; i < argc && i - 2 < LIBRARIES; i++)
        settings[i - 2] = dlsym(dlopen(argv[i], RTLD_NOW | RTLD_NOLOAD), "sampler_preload_settings");
    for (int i = 0; i == 0 || i < argc - 2; i++)
        if (!settings[i]) return 2;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        uint64_t before = samples();
        for (long call = 0; call < calls; call++) {
            functions[i].run();
            if (!block) return 1;
            free(block);
        }
        printf("%s %lu\n", functions[i].name, (unsigned long)(samples() - before));
    }
    return 0;
}
