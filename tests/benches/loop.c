/* The process that `cargo xtask bench probe` measures: times malloc and free on command.
 *
 * Commands, one a line; each is answered by one line:
 *   hold COUNT              keeps COUNT more blocks;                  answer: `held`
 *   pairs BLOCKS CALLS      malloc and free, the same address again;  answer: ns of each block
 *   compute BLOCKS CALLS    arithmetic, nothing allocated;          answer: ns of each block
 *   scattered BLOCKS CALLS  free of random blocks of a pool;          answer: ns of each block
 * Times are CPU time of the thread (nanoseconds, by the scheduler's clock): what other processes of
 * a shared machine take does not count, what the probes take does. One CPU; nothing else allocates.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE 64
#define POOL 100000
#define BLOCKS_MAX 1000
/* Not timed: caches, branch predictors and the probe's page settle. */
#define WARM_UP 2

static void *pool[POOL];

static inline void keep(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t random64(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static __attribute__((noipa)) uint64_t pairs(long calls) {
    uint64_t start = now();
    for (long i = 0; i < calls; i++) {
        void *p = malloc(SIZE);
        keep(p);
        free(p);
    }
    return now() - start;
}

/* Allocates nothing. */
static __attribute__((noipa)) uint64_t compute(long calls) {
    uint64_t start = now(), sum = 0;
    for (long i = 0; i < calls * 16; i++) sum += random64();
    __asm__ volatile("" : : "r"(sum));
    return now() - start;
}

static __attribute__((noipa)) uint64_t scattered(long calls) {
    for (long i = 0; i < calls; i++) {
        long j = i + (long)(random64() % (uint64_t)(POOL - i));
        void *p = pool[i];
        pool[i] = pool[j];
        pool[j] = p;
    }
    uint64_t start = now();
    for (long i = 0; i < calls; i++) free(pool[i]);
    uint64_t time = now() - start;
    for (long i = 0; i < calls; i++) pool[i] = malloc(SIZE);
    return time;
}

static void say(const char *line, size_t length) {
    while (length > 0) {
        ssize_t wrote = write(1, line, length);
        if (wrote <= 0) _exit(1);
        line += wrote;
        length -= (size_t)wrote;
    }
}

static void measure(uint64_t (*block)(long), long blocks, long calls) {
    static uint64_t times[BLOCKS_MAX];
    static char line[BLOCKS_MAX * 21 + 2];
    if (blocks < 1 || blocks > BLOCKS_MAX || calls < 1 || calls > POOL) _exit(2);
    for (long i = 0; i < WARM_UP; i++) block(calls);
    for (long i = 0; i < blocks; i++) times[i] = block(calls);
    size_t length = 0;
    for (long i = 0; i < blocks; i++)
        length += (size_t)sprintf(line + length, "%lu ", (unsigned long)times[i]);
    line[length - 1] = '\n';
    say(line, length);
}

/* Lines through read(2): stdio would allocate its buffer under the probes. */
static int read_line(char *line, size_t room) {
    for (size_t length = 0; length + 1 < room; length++) {
        if (read(0, line + length, 1) != 1) return 0;
        if (line[length] == '\n') {
            line[length] = 0;
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) return 1;
    for (long i = 0; i < POOL; i++) pool[i] = malloc(SIZE);
    say("ready\n", 6);
    char line[128];
    while (read_line(line, sizeof line)) {
        long blocks, calls;
        if (sscanf(line, "pairs %ld %ld", &blocks, &calls) == 2) {
            measure(pairs, blocks, calls);
        } else if (sscanf(line, "compute %ld %ld", &blocks, &calls) == 2) {
            measure(compute, blocks, calls);
        } else if (sscanf(line, "scattered %ld %ld", &blocks, &calls) == 2) {
            measure(scattered, blocks, calls);
        } else if (sscanf(line, "hold %ld", &calls) == 1) {
            for (long i = 0; i < calls; i++) keep(malloc(SIZE));
            say("held\n", 5);
        } else {
            return 2;
        }
    }
    return 0;
}
