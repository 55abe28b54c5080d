/* A burst: MEGABYTES as fast as it can, or with PAUSE microseconds after each 64 KiB, in three functions whose blocks are freed; a fourth holds
 * 6 MB, the last of it at the end.
 *     burst MEGABYTES PAUSE [now]
 * With `now` it neither waits for a line nor for its end.
 */
#include "protocol.h"
#include <sys/prctl.h>

#define ROUND (64 << 10)
#define HELD_BYTES 6000000
#define HELD_SIZE 3000

static struct row rows[] = {{"small", {0}, {0}}, {"medium", {0}, {0}}, {"large", {0}, {0}}, {"held", {0}, {0}}};

DISTINCT void *small(size_t size) { void *p = malloc(size); keep(p); return p; }
DISTINCT void *medium(size_t size) { void *p = malloc(size); keep(p); return p; }
DISTINCT void *large(size_t size) { void *p = malloc(size); keep(p); return p; }
DISTINCT void *held(size_t size) { void *p = malloc(size); keep(p); return p; }

static void counted(struct row *row, size_t size, int is_held) {
    row->alloc.objects += 1;
    row->alloc.bytes += size;
    row->live.objects += (uint64_t)is_held;
    row->live.bytes += is_held ? size : 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t rounds = (size_t)atoll(argv[1]) * 1000000 / ROUND;
    useconds_t pause = (useconds_t)atoi(argv[2]);
    int waits = argc < 4;
    sampling_interval(1);
    /* Whoever reads the time-stamp counter in here ends this program. */
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) return 3;
    if (waits) await_go();
    for (size_t round = 0; round < rounds; round++) {
        for (size_t bytes = 0; bytes < ROUND / 4; bytes += 64) {
            free(small(64));
            counted(&rows[0], 64, 0);
        }
        for (size_t bytes = 0; bytes < ROUND / 4; bytes += 1000) {
            free(medium(1000));
            counted(&rows[1], 1000, 0);
        }
        free(large(ROUND / 2));
        counted(&rows[2], ROUND / 2, 0);
        /* Evenly, as far as whole blocks are even. */
        while (rows[3].live.bytes < (double)HELD_BYTES * (round + 1) / rounds) {
            held(HELD_SIZE);
            counted(&rows[3], HELD_SIZE, 1);
        }
        if (pause) usleep(pause);
    }
    say_truth(rows, 4);
    if (waits) await_line();
    return 0;
}
