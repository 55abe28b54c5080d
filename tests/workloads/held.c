/* Preloaded: counts what the program asks of malloc and what of it it still holds, exactly, by the same rules as the profile,
 * while it runs. The numbers are in the file $HELD_IN, which the program and the test both map: whoever sets `on` begins. For a
 * program that does not fork. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct counts {
    _Atomic uint64_t on, allocations, bytes, held, held_bytes, unknown;
};

static struct counts nobody, *counts = &nobody;

static void *(*next_malloc)(size_t), *(*next_calloc)(size_t, size_t), *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t), *(*next_memalign)(size_t, size_t);

/* Blocks that are held: open addressing, linear probing, an address of 0 is a free slot. */
#define SLOTS (1u << 20)
static struct block {
    uintptr_t address;
    size_t size;
} blocks[SLOTS];
static unsigned used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned home(uintptr_t address) { return (unsigned)((address >> 4) * 0x9e3779b97f4a7c15u >> 44) % SLOTS; }

static void *hold(void *block, size_t size) {
    if (!block || !atomic_load(&counts->on))
        return block;
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&counts->allocations, 1);
    atomic_fetch_add(&counts->bytes, size);
    if (used < SLOTS / 2) {
        unsigned at = home((uintptr_t)block);
        while (blocks[at].address)
            at = (at + 1) % SLOTS;
        blocks[at] = (struct block){(uintptr_t)block, size};
        used += 1;
        atomic_fetch_add(&counts->held, 1);
        atomic_fetch_add(&counts->held_bytes, size);
    } else {
        atomic_fetch_add(&counts->unknown, 1);
    }
    pthread_mutex_unlock(&lock);
    return block;
}

/* Closes the gap at `at`: whoever stands behind it and may stand there moves up. */
static void close_gap(unsigned at) {
    for (unsigned next = (at + 1) % SLOTS; blocks[next].address; next = (next + 1) % SLOTS) {
        if ((next - home(blocks[next].address)) % SLOTS >= (next - at) % SLOTS) {
            blocks[at] = blocks[next];
            at = next;
        }
    }
    blocks[at].address = 0;
}

/* The size that the block was held with; SIZE_MAX for one that is older than `on`. */
static size_t let_go(void *block) {
    size_t size = SIZE_MAX;
    if (!block || !atomic_load(&counts->on))
        return size;
    pthread_mutex_lock(&lock);
    unsigned at = home((uintptr_t)block);
    while (blocks[at].address && blocks[at].address != (uintptr_t)block)
        at = (at + 1) % SLOTS;
    if (blocks[at].address) {
        size = blocks[at].size;
        close_gap(at);
        used -= 1;
        atomic_fetch_sub(&counts->held, 1);
        atomic_fetch_sub(&counts->held_bytes, size);
    }
    pthread_mutex_unlock(&lock);
    return size;
}

/* Allocations of the loader while it looks the next allocator up. */
static char early[1 << 16];
static _Atomic size_t early_used;
static int is_early(void *block) { return (char *)block >= early && (char *)block < early + sizeof early; }

static void *early_block(size_t size) {
    size_t at = atomic_fetch_add(&early_used, (size + 15) & ~(size_t)15);
    if (at + size > sizeof early)
        abort();
    return early + at;
}

static int ready(void) {
    static _Thread_local int looking __attribute__((tls_model("initial-exec")));
    if (next_memalign)
        return 1;
    if (looking)
        return 0;
    looking = 1;
    next_malloc = dlsym(RTLD_NEXT, "malloc");
    next_calloc = dlsym(RTLD_NEXT, "calloc");
    next_realloc = dlsym(RTLD_NEXT, "realloc");
    next_free = dlsym(RTLD_NEXT, "free");
    next_posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    next_aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    next_memalign = dlsym(RTLD_NEXT, "memalign");
    looking = 0;
    return 1;
}

void *malloc(size_t size) { return ready() ? hold(next_malloc(size), size) : early_block(size); }

void *calloc(size_t n, size_t size) { return ready() ? hold(next_calloc(n, size), n * size) : early_block(n * size); }

void free(void *block) {
    if (is_early(block) || !ready())
        return;
    let_go(block);
    next_free(block);
}

void *realloc(void *old, size_t size) {
    if (is_early(old)) {
        void *block = malloc(size);
        size_t there = early + sizeof early - (char *)old;
        return block ? memcpy(block, old, size < there ? size : there) : 0;
    }
    if (!ready())
        return early_block(size);
    /* Before the call: from then on another thread may be given the address. */
    size_t was = let_go(old);
    void *block = next_realloc(old, size);
    if (old && size == 0)
        return block;
    if (!block && was != SIZE_MAX) {
        hold(old, was);
        atomic_fetch_sub(&counts->allocations, 1);
        atomic_fetch_sub(&counts->bytes, was);
    }
    return hold(block, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (!ready())
        return ENOMEM;
    int error = next_posix_memalign(out, alignment, size);
    if (!error)
        hold(*out, size);
    return error;
}

void *aligned_alloc(size_t alignment, size_t size) {
    return ready() ? hold(next_aligned_alloc(alignment, size), size) : 0;
}

void *memalign(size_t alignment, size_t size) { return ready() ? hold(next_memalign(alignment, size), size) : 0; }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HELD_IN");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0)
        return;
    void *map = mmap(0, sizeof(struct counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED)
        counts = map;
}
