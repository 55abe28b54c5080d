/* A library whose allocator has jemalloc's names, and whose callers have its fast path inlined, as DuckDB's have: three of four
 * blocks come from a cache, and no function is called for them. With -DHOST: the program that calls it. */
#include "protocol.h"
#include <dlfcn.h>
#include <sys/mman.h>

#define COUNT 1000
#define SIZE 4096

#ifdef HOST

int main(int count, char **arguments) {
    sampling_interval(1);
    void *library = dlopen(count > 1 ? arguments[1] : "", RTLD_NOW);
    void (*keep_blocks)(void) = library ? (void (*)(void))dlsym(library, "keep_blocks") : NULL;
    if (!keep_blocks) return 3;
    await_go();
    keep_blocks();
    struct row rows[1] = {{.name = "keep_blocks"}};
    for (int i = 0; i < COUNT; i++) {
        add(&rows[0].alloc, SIZE);
        add(&rows[0].live, SIZE);
    }
    say_truth(rows, 1);
    await_line();
    return 0;
}

#else

static char *next, *end;

/* Not static, and not hidden: a call goes through the linkage table, as between the objects of a large library. */
DISTINCT void *duckdb_je_malloc_default(size_t size) {
    if (next == end) {
        next = mmap(NULL, COUNT * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = next + COUNT * SIZE;
    }
    char *block = next;
    next += size;
    return block;
}

DISTINCT void duckdb_je_free_default(void *block) { keep(block); }

void *duckdb_je_malloc(size_t size) {
    if (next == NULL) abort();
    void *block = next;
    next += size;
    return block;
}

void duckdb_je_free(void *block) { duckdb_je_free_default(block); }

int duckdb_je_mallctl(void) { return 0; }

DISTINCT void keep_blocks(void) {
    static int turn;
    for (int i = 0; i < COUNT; i++) {
        char *block = next;
        if (turn++ % 4 == 0) block = duckdb_je_malloc_default(SIZE);
        else next += SIZE;
        *block = 1;
        keep(block);
    }
}

#endif
