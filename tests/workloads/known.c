/* known [SEED]: in two rounds, stacks that the profiler may know again, and others that look like them.
 *
 * Every allocation is by one call of malloc, at one stack pointer, 12 KiB below main. What differs is deeper: who has called (two callers with frames of
 * the same size, and two callers of theirs), a frame whose size is only known at run time, so that it lies where the frame pointer says, and
 * the local variables, which are never the same. One thread more does the same on a stack of its own.
 */
#include "protocol.h"
#include <alloca.h>
#include <pthread.h>

enum { FIRST, SECOND, NEAR, FAR, DEEP, DEEPER, FUNCTIONS };
static const char *const names[FUNCTIONS] = {
    "by_first", "by_second", "near", "far", "deep", "deeper",
};

enum { CALLS = 20000, ROUNDS = 2, THREADS = 2 };

struct thread {
    uint64_t state;
    uintptr_t target;
    struct row rows[FUNCTIONS];
};
static struct thread threads[THREADS];

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t next(struct thread *t) {
    uint64_t z = (t->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void count(struct thread *t, int f, size_t size) { add(&t->rows[f].alloc, size); }

DISTINCT void *get(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

/* Two that differ in nothing but their place. */
DISTINCT void *by_first(struct thread *t, size_t size) {
    volatile uint64_t room[64];
    room[size % 64] = next(t);
    void *p = get(size);
    count(t, FIRST, size);
    keep((void *)room);
    return p;
}

DISTINCT void *by_second(struct thread *t, size_t size) {
    volatile uint64_t room[64];
    room[size % 64] = next(t);
    void *p = get(size);
    count(t, SECOND, size);
    keep((void *)room);
    return p;
}

static void *either(struct thread *t, size_t size) {
    return next(t) & 1 ? by_first(t, size) : by_second(t, size);
}

DISTINCT void *near(struct thread *t, size_t size) {
    volatile uint64_t room[800];
    for (int i = 0; i < 8; i++) room[next(t) % 800] = next(t);
    void *p = either(t, size);
    count(t, NEAR, size);
    keep((void *)room);
    return p;
}

DISTINCT void *far(struct thread *t, size_t size) {
    volatile uint64_t room[800];
    for (int i = 0; i < 8; i++) room[next(t) % 800] = next(t);
    void *p = either(t, size);
    count(t, FAR, size);
    keep((void *)room);
    return p;
}

/* Calls malloc with the same stack pointer, from wherever it is called. */
DISTINCT void *at_target(struct thread *t, size_t size) {
    uintptr_t here = (uintptr_t)__builtin_dwarf_cfa();
    volatile char *room = alloca(here - t->target);
    room[next(t) % (here - t->target)] = 1;
    void *p = malloc(size);
    keep(p);
    return p;
}

DISTINCT void *deep(struct thread *t, size_t size) {
    volatile uint64_t room[256];
    room[next(t) % 256] = next(t);
    void *p = at_target(t, size);
    count(t, DEEP, size);
    keep((void *)room);
    return p;
}

DISTINCT void *deeper(struct thread *t, size_t size) {
    volatile uint64_t room[512];
    room[next(t) % 512] = next(t);
    void *p = at_target(t, size);
    count(t, DEEPER, size);
    keep((void *)room);
    return p;
}

/* A page that was never touched cannot be copied, and what is above it neither. */
DISTINCT void touch(void) {
    char pages[64 << 10];
    memset(pages, 1, sizeof pages);
    keep(pages);
}

DISTINCT void allocate(struct thread *t) {
    volatile uint64_t wide[1536];
    memset((void *)wide, 1, sizeof wide);
    t->target = (uintptr_t)wide - 8192;
    for (int i = 0; i < CALLS; i++) {
        size_t size = 16 + next(t) % 1000;
        wide[next(t) % 1536] = next(t);
        void *p;
        switch (next(t) % 4) {
        case 0: p = near(t, size); break;
        case 1: p = far(t, size); break;
        case 2: p = deep(t, size); break;
        default: p = deeper(t, size);
        }
        free(p);
    }
    keep((void *)wide);
}

static pthread_barrier_t start, done;

static void *work(void *argument) {
    touch();
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&start);
        allocate(argument);
        pthread_barrier_wait(&done);
    }
    for (;;) pause();
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    sampling_interval(1.0);
    pthread_barrier_init(&start, NULL, THREADS);
    pthread_barrier_init(&done, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) threads[i].state = seed * 1000003 + (uint64_t)i;
    pthread_t other;
    if (pthread_create(&other, NULL, work, &threads[1])) return 3;

    touch();
    for (int round = 0; round < ROUNDS; round++) {
        await_go();
        pthread_barrier_wait(&start);
        allocate(&threads[0]);
        pthread_barrier_wait(&done);
    }
    static struct row all[FUNCTIONS];
    for (int f = 0; f < FUNCTIONS; f++) {
        all[f].name = names[f];
        for (int i = 0; i < THREADS; i++) add_sums(&all[f].alloc, &threads[i].rows[f].alloc);
    }
    say_truth(all, FUNCTIONS);
    await_line();
    return 0;
}
