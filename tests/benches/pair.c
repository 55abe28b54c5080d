/* Pairs of malloc and free, timed by the threads that make them, for `cargo xtask bench preload`.
 *
 *   pair THREADS PAIRS    prints the mean CPU time of a pair in nanoseconds
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 64

static long pairs;
static double spent_ns[THREADS_MAX];

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void make(long count) {
    for (long i = 0; i < count; i++) {
        void *p = malloc(48);
        __asm__ volatile("" : : "r"(p) : "memory");
        free(p);
    }
}

static void *work(void *number) {
    make(100000);
    double begin = now_ns();
    make(pairs);
    spent_ns[(uintptr_t)number] = now_ns() - begin;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long threads = atol(argv[1]);
    pairs = atol(argv[2]);
    if (threads < 1 || threads > THREADS_MAX || pairs < 1) return 2;
    pthread_t all[THREADS_MAX];
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++)
        if (pthread_create(all + i, NULL, work, (void *)i)) return 1;
    double sum = 0;
    for (long i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
        sum += spent_ns[i];
    }
    printf("%.4f\n", sum / (double)threads / (double)pairs);
    return 0;
}
