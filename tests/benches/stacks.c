/* Allocates from many different stacks at a steady rate:
 *     stacks RATE DEPTH FRAME DISTINCT SECONDS [held]
 * RATE blocks of 64 bytes in a second (0: as fast as it can), each from one of DISTINCT stacks of DEPTH calls whose frames have FRAME bytes more
 * than they need, and freed at once, unless they are to be held. Says `waiting`, waits for a line, allocates, says how many, and waits again.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long depth, frame, is_held;

__attribute__((noipa)) static int64_t left(int64_t, long);
__attribute__((noipa)) static int64_t right(int64_t, long);

static inline __attribute__((always_inline)) int64_t descend(int64_t path, long level) {
    volatile char *room = __builtin_alloca(frame);
    room[0] = (char)path;
    if (level == 0) {
        char *p = malloc(64);
        __asm__ volatile("" : : "r"(p) : "memory");
        if (!is_held) free(p);
        return 1 + room[0] - (char)path;
    }
    int64_t made = path & 1 ? left(path >> 1, level - 1) : right(path >> 1, level - 1);
    return made + room[0] - (char)path;
}

static int64_t left(int64_t path, long level) { return descend(path, level); }
static int64_t right(int64_t path, long level) { return descend(path, level); }

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void await_line(void) {
    char c;
    while (read(0, &c, 1) == 1 && c != '\n') {}
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(1);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    is_held = argc > 6;
    int64_t rate = atoll(argv[1]), distinct = atoll(argv[4]), seconds = atoll(argv[5]);
    depth = atol(argv[2]);
    frame = atol(argv[3]);
    if (distinct <= 0 || depth <= 0 || frame <= 0) return 2;
    say("waiting\n");
    await_line();
    int64_t start = now_ns(), end = start + seconds * 1000000000, made = 0, now = start;
    uint64_t state = 1;
    for (; now < end; now = now_ns()) {
        int64_t due = rate ? (int64_t)((double)(now - start) * 1e-9 * (double)rate) : made + 1000;
        for (; made < due; made++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int64_t path = (int64_t)((state >> 33) % (uint64_t)distinct);
            if (left(path, depth) != 1) return 3;
        }
        if (rate) usleep(500);
    }
    char line[64];
    snprintf(line, sizeof line, "%lld %lld\n", (long long)made, (long long)(now - start));
    say(line);
    await_line();
    return 0;
}
