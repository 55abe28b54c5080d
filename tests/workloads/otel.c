/* A program that allocates through a library that samples by itself (otelarena.c), and a little through malloc.
 *
 *   otel LIBRARY early|late CASE       late: the library is loaded after the mark
 *
 * plain      sampled, unsampled and freed blocks, and some of glibc's
 * hostile    values that cannot be
 * flood      more samples in a moment than a process may send
 * semaphore  says what the semaphores are, now and once more
 */
#include "protocol.h"
#include <dlfcn.h>

static void *(*arena_alloc)(size_t, size_t);
static void *(*arena_alloc_small)(unsigned, unsigned);
static void (*arena_free)(void *);
static void (*arena_say)(void *, size_t, size_t);
static unsigned (*arena_semaphores)(void);

static struct row rows[4];
static size_t row_count;

/* A sample that stands for `weighted` bytes: a multiple of its size. */
static void stands_for(struct sums *sums, size_t size, size_t weighted) {
    sums->objects += weighted / size;
    sums->bytes += weighted;
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) _exit(4);
    *(void **)&arena_alloc = dlsym(library, "arena_alloc");
    *(void **)&arena_alloc_small = dlsym(library, "arena_alloc_small");
    *(void **)&arena_free = dlsym(library, "arena_free");
    *(void **)&arena_say = dlsym(library, "arena_say");
    *(void **)&arena_semaphores = dlsym(library, "arena_semaphores");
}

DISTINCT static void sampled_kept(struct row *row) {
    for (size_t i = 0; i < 500; i++) {
        size_t size = 16 + 8 * (i % 30), weighted = size * (1 + i % 97);
        keep(arena_alloc(size, weighted));
        stands_for(&row->alloc, size, weighted);
        stands_for(&row->live, size, weighted);
        keep(arena_alloc(size, 0));
    }
}

DISTINCT static void sampled_freed(struct row *row) {
    for (size_t i = 0; i < 500; i++) {
        size_t size = 1000 + i, weighted = size * 3;
        void *p = arena_alloc(size, weighted);
        keep(p);
        stands_for(&row->alloc, size, weighted);
        if (i % 5) arena_free(p);
        else stands_for(&row->live, size, weighted);
    }
}

DISTINCT static void sampled_small(struct row *row) {
    for (unsigned i = 0; i < 100; i++) {
        keep(arena_alloc_small(40, 4000));
        stands_for(&row->alloc, 40, 4000);
        stands_for(&row->live, 40, 4000);
    }
}

DISTINCT static void glibc_kept(struct row *row) {
    for (size_t i = 0; i < 100; i++) {
        keep(malloc(100 + i));
        stands_for(&row->alloc, 100 + i, 100 + i);
        stands_for(&row->live, 100 + i, 100 + i);
    }
}

DISTINCT static void hostile(struct row *row) {
    static char block[4096];
    double no_number = NAN;
    uint64_t bits;
    memcpy(&bits, &no_number, sizeof bits);
    arena_say(block, 0, 4096);
    arena_say(block, 0, 0);
    arena_say(NULL, 64, 4096);
    arena_say(block, 4097, 4096);
    arena_say(block, 64, UINT64_MAX);
    arena_say(block, UINT64_MAX, UINT64_MAX);
    arena_say(block, 64, bits);
    arena_say(block, bits, 64);
    arena_say(block, 64, (size_t)1 << 48);
    row->alloc.objects = 9; /* refused */
    arena_say(block + 64, 64, 640);
    row->alloc.bytes = 640;
}

DISTINCT static void flood(struct row *row) {
    for (size_t i = 0; i < 50000; i++) arena_say((void *)(0x10000000 + 16 * i), 8, 80);
    row->alloc.objects = 50000;
}

#define RUN(function)                          \
    do {                                       \
        rows[row_count].name = #function;      \
        function(&rows[row_count++]);          \
    } while (0)

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    if (strcmp(argv[2], "early") == 0) load(argv[1]);
    await_go();
    if (strcmp(argv[2], "late") == 0) {
        load(argv[1]);
        /* Until it is found, it cannot be seen: the semaphores tell. */
        for (int i = 0; i < 3000 && arena_semaphores() < 2; i++) usleep(10000);
    }
    if (strcmp(argv[3], "plain") == 0) {
        RUN(sampled_kept);
        RUN(sampled_freed);
        RUN(sampled_small);
        RUN(glibc_kept);
    } else if (strcmp(argv[3], "hostile") == 0) {
        RUN(hostile);
    } else if (strcmp(argv[3], "flood") == 0) {
        RUN(flood);
    } else {
        rows[row_count++].name = "semaphores";
        rows[0].alloc.objects = arena_semaphores();
        say_truth(rows, row_count);
        await_line();
        rows[0].alloc.objects = arena_semaphores();
    }
    say_truth(rows, row_count);
    await_line();
    return 0;
}
