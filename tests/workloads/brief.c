/* Programs that are over before anybody can look at them.
 *
 * brief PROGRAM ARGUMENTS...: allocates within `step_N` (N by -DSTEP=N) and becomes PROGRAM, or exits if there is none.
 * -DTHREADED: another thread than the first does so, -DORPHAN: after the first one has ended.
 * -DWAITING: waits for a line first, -DDELETED: after it has deleted itself. -DSTEADY: allocates for a while, and prints when (CLOCK_MONOTONIC).
 */
#include "protocol.h"
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#ifndef STEP
#define STEP 0
#endif
#define GLUE(a, b) a##b
#define NAME(a, b) GLUE(a, b)
#define WORK NAME(step_, STEP)

enum { BLOCKS = 100, BLOCK = 40960, STEADY_BLOCKS = 20000, PAUSE_NS = 20000, PRINTED_EVERY = 20 };

DISTINCT void *brief_alloc(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

DISTINCT void WORK(int blocks, size_t size) {
    for (int i = 0; i < blocks; i++) free(brief_alloc(size));
}

#ifdef STEADY
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* The time of every 20th allocation. */
static void steady(void) {
    static long long times[STEADY_BLOCKS / PRINTED_EVERY];
    for (int i = 0; i < STEADY_BLOCKS; i++) {
        long long t = now();
        if (i % PRINTED_EVERY == 0) times[i / PRINTED_EVERY] = t;
        WORK(1, 64);
        while (now() < t + PAUSE_NS);
    }
    static char text[STEADY_BLOCKS / PRINTED_EVERY * 21 + 2];
    size_t n = 0;
    for (int i = 0; i < STEADY_BLOCKS / PRINTED_EVERY; i++)
        n += (size_t)sprintf(text + n, "%lld ", times[i]);
    text[n++] = '\n';
    if (write(1, text, n) != (ssize_t)n) _exit(4);
}
#endif

static void *go_on(void *arguments) {
    char **argv = arguments;
#ifdef ORPHAN
    char state[256];
    do {
        int stat = open("/proc/self/stat", O_RDONLY);
        ssize_t n = read(stat, state, sizeof state - 1);
        if (n <= 0 || close(stat)) _exit(6);
        state[n] = 0;
    } while (!strstr(state, ") Z "));
#endif
    WORK(BLOCKS, BLOCK);
    if (argv[1]) {
        execv(argv[1], argv + 1);
        _exit(5);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    (void)argc;
#ifdef DELETED
    if (unlink(argv[0]) != 0) return 3;
#endif
#if defined DELETED || defined WAITING
    char c;
    if (write(1, "waiting\n", 8) != 8 || read(0, &c, 1) != 1) return 4;
#endif
#ifdef STEADY
    steady();
#endif
#if defined THREADED || defined ORPHAN
    pthread_t thread;
    if (pthread_create(&thread, NULL, go_on, argv)) return 7;
#ifdef ORPHAN
    pthread_exit(NULL);
#endif
    pthread_join(thread, NULL);
#else
    go_on(argv);
#endif
    return 8;
}
