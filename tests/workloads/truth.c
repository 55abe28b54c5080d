/* Counts its own allocations per function.
 *
 * truth SEED SCALE INTERVAL_BYTES [poisson | bernoulli (the interval is in calls)]: about 600,000 allocations at scale 1, sizes 0 B to 2 MiB with a
 * heavy tail; some blocks are kept, some freed at once, some later, some by another thread.
 * Threads, buffers and tables exist before the mark; no allocation happens outside the counts.
 */
#include "protocol.h"
#include <pthread.h>

enum { SMALL, ZEROED, GROW, ALIGNED, ALIGNED2, WORKER, REMOTE, FUNCTIONS };
static const char *const names[FUNCTIONS] = {
    "alloc_small", "alloc_zeroed", "grow_buffer", "alloc_aligned",
    "alloc_aligned2", "worker_alloc", "remote_alloc",
};

enum { WORKERS = 3, HELD = 2048, MAILBOX = 1 << 16 };

/* A block that may be freed later. */
struct block { void *p; size_t size; };

/* What one thread knows; nobody else writes to it. */
struct thread {
    uint64_t state;
    struct row rows[FUNCTIONS];
    struct block held[HELD];
    struct block mailbox[MAILBOX];
    size_t posted;
};
static struct thread threads[WORKERS + 1];
static pthread_barrier_t start, done;
static long scale;

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t next(struct thread *t) {
    uint64_t z = (t->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Mostly small, one in 2^k about 2^k times larger, up to 2 MiB; now and then 0. */
static size_t draw_size(struct thread *t) {
    uint64_t r = next(t);
    if ((r >> 52) == 0) return 0;
    int octave = __builtin_ctzll(r | (1 << 14));
    size_t base = (size_t)16 << octave;
    size_t size = base + (r >> 32) % (base * 7);
    return size > (2u << 20) ? 2u << 20 : size;
}

static void failed(const char *what) {
    say("{\"error\":\"%s\"}", what);
    send_line();
    _exit(3);
}

static void count(struct thread *t, int f, void *p, size_t size) {
    if (!p) failed(names[f]);
    keep(p);
    add(&t->rows[f].alloc, size);
}

DISTINCT void *alloc_small(struct thread *t, size_t size) {
    void *p = malloc(size);
    count(t, SMALL, p, size);
    return p;
}

DISTINCT void *alloc_zeroed(struct thread *t, size_t size) {
    size_t members = size % 8 == 0 ? 8 : 1;
    void *p = calloc(members, size / members);
    count(t, ZEROED, p, size);
    return p;
}

DISTINCT void *grow_buffer(struct thread *t, void *old, size_t size) {
    void *p = realloc(old, size);
    count(t, GROW, p, size);
    return p;
}

DISTINCT void *alloc_aligned(struct thread *t, size_t alignment, size_t size) {
    void *p = NULL;
    if (posix_memalign(&p, alignment, size)) p = NULL;
    count(t, ALIGNED, p, size);
    return p;
}

DISTINCT void *alloc_aligned2(struct thread *t, size_t alignment, size_t size) {
    void *p = aligned_alloc(alignment, size);
    count(t, ALIGNED2, p, size);
    return p;
}

DISTINCT void *worker_alloc(struct thread *t, size_t size) {
    void *p = malloc(size);
    count(t, WORKER, p, size);
    return p;
}

DISTINCT void *remote_alloc(struct thread *t, size_t size) {
    void *p = malloc(size);
    count(t, REMOTE, p, size);
    return p;
}

/* Decides what becomes of a block: freed at once (5/8), freed by a later one that takes its place
 * (2/8), or kept for good (1/8). */
static void settle(struct thread *t, int f, void *p, size_t size) {
    uint64_t r = next(t);
    switch (r % 8) {
    case 0:
        add(&t->rows[f].live, size);
        return;
    case 1:
    case 2: {
        /* One part of the table for each function, so that what is left can be counted. */
        size_t part = HELD / FUNCTIONS;
        struct block *slot = &t->held[(size_t)f * part + (r >> 32) % part];
        free(slot->p);
        *slot = (struct block){p, size};
        return;
    }
    default:
        free(p);
    }
}

static void count_held(struct thread *t) {
    for (int f = 0; f < FUNCTIONS; f++)
        for (size_t i = 0; i < HELD / FUNCTIONS; i++) {
            struct block *b = &t->held[(size_t)f * (HELD / FUNCTIONS) + i];
            if (b->p) add(&t->rows[f].live, b->size);
        }
}

static void main_part(struct thread *t) {
    for (long i = 0; i < 220000 * scale; i++) {
        size_t size = draw_size(t);
        settle(t, SMALL, alloc_small(t, size), size);
    }
    for (long i = 0; i < 80000 * scale; i++) {
        size_t size = draw_size(t) & ~(size_t)(i & 7);
        settle(t, ZEROED, alloc_zeroed(t, size), size);
    }
    for (long i = 0; i < 5000 * scale; i++) {
        void *p = NULL;
        size_t size = 24 + next(t) % 64, last = 1024 + next(t) % (64 << 10);
        /* A block of its own in between makes some of the growth move. */
        while (size < last) {
            p = grow_buffer(t, p, size);
            if (next(t) % 4 == 0) settle(t, SMALL, alloc_small(t, 40), 40);
            size += size / 2 + 8;
        }
        p = grow_buffer(t, p, last);
        settle(t, GROW, p, last);
    }
    for (long i = 0; i < 40000 * scale; i++) {
        size_t size = draw_size(t), alignment = (size_t)8 << next(t) % 8;
        settle(t, ALIGNED, alloc_aligned(t, alignment, size), size);
        alignment = (size_t)16 << next(t) % 6;
        size = (draw_size(t) / alignment + 1) * alignment;
        settle(t, ALIGNED2, alloc_aligned2(t, alignment, size), size);
    }
}

static void *worker(void *argument) {
    struct thread *t = argument;
    pthread_barrier_wait(&start);
    for (long i = 0; i < 40000 * scale; i++) {
        size_t size = draw_size(t);
        settle(t, WORKER, worker_alloc(t, size), size);
        if (t->posted < MAILBOX && i % 2 == 0) {
            size = 1 + draw_size(t);
            t->mailbox[t->posted++] = (struct block){remote_alloc(t, size), size};
        }
    }
    pthread_barrier_wait(&done);
    /* Thread exit calls free; it happens after everybody has asked. */
    for (;;) pause();
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    scale = strtol(argv[2], NULL, 10);
    sampling_interval(strtod(argv[3], NULL));
    if (argc == 5) sampling_strategy(argv[4]);
    pthread_barrier_init(&start, NULL, WORKERS + 1);
    pthread_barrier_init(&done, NULL, WORKERS + 1);
    for (int i = 0; i <= WORKERS; i++) {
        threads[i].state = seed * 1000003 + (uint64_t)i * 7919;
        pthread_t handle;
        if (i < WORKERS && pthread_create(&handle, NULL, worker, &threads[i])) return 3;
    }
    struct thread *self = &threads[WORKERS];

    await_go();
    pthread_barrier_wait(&start);
    main_part(self);
    pthread_barrier_wait(&done);
    /* Three of four blocks of the other threads are freed here. */
    for (int i = 0; i < WORKERS; i++)
        for (size_t j = 0; j < threads[i].posted; j++) {
            struct block *b = &threads[i].mailbox[j];
            if (j % 4) free(b->p);
            else add(&threads[i].rows[REMOTE].live, b->size);
        }

    static struct row all[FUNCTIONS];
    for (int i = 0; i <= WORKERS; i++) count_held(&threads[i]);
    for (int f = 0; f < FUNCTIONS; f++) {
        all[f].name = names[f];
        for (int i = 0; i <= WORKERS; i++) {
            add_sums(&all[f].alloc, &threads[i].rows[f].alloc);
            add_sums(&all[f].live, &threads[i].rows[f].live);
        }
    }
    say_truth(all, FUNCTIONS);
    await_line();
    return 0;
}
