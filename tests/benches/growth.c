/* What grows in `cargo xtask bench tools`: blocks that are held, different stacks, depth of stacks.
 *
 *   growth live COUNT     pairs of malloc and free; the line `hold` makes COUNT blocks that are kept
 *   growth stacks COUNT   pairs under COUNT different stacks, one after another
 *   growth depth COUNT    pairs under COUNT frames
 *
 * A line with a number is answered by a line once so many pairs are made.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Twenty bits of a number choose a path through two functions: a stack of its own each. */
#define PATH_BITS 20
#define SIZE 64

static long limit;

static inline void keep(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

__attribute__((noipa)) static void pair(void) {
    void *p = malloc(SIZE);
    keep(p);
    free(p);
}

__attribute__((noipa)) static void walk(uint32_t path, int left);

__attribute__((noipa)) static void zero(uint32_t path, int left) {
    walk(path, left);
    __asm__ volatile("");
}

__attribute__((noipa)) static void one(uint32_t path, int left) {
    walk(path, left);
    __asm__ volatile("");
}

__attribute__((noipa)) static void walk(uint32_t path, int left) {
    if (left == 0) {
        pair();
    } else if (path & 1) {
        one(path >> 1, left - 1);
    } else {
        zero(path >> 1, left - 1);
    }
    __asm__ volatile("");
}

/* Pairs at the bottom: what the descent itself costs stays out. */
__attribute__((noipa)) static void descend(long depth, long pairs) {
    if (depth > 1) {
        descend(depth - 1, pairs);
    } else {
        for (long i = 0; i < pairs; i++) pair();
    }
    __asm__ volatile("");
}

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
    if (argc != 3) return 2;
    const char *what = argv[1];
    limit = atol(argv[2]);
    uint32_t next = 0;
    char line[32];
    while (read_line(line, sizeof line)) {
        long pairs = atol(line);
        if (strcmp(line, "hold") == 0) {
            for (long i = 0; i < limit; i++) keep(malloc(SIZE));
        } else if (strcmp(what, "stacks") == 0) {
            for (long i = 0; i < pairs; i++) {
                walk(next, PATH_BITS);
                next = (next + 1) % (uint32_t)limit;
            }
        } else {
            descend(strcmp(what, "depth") == 0 ? limit : 1, pairs);
        }
        if (write(1, "done\n", 5) != 5) return 1;
    }
    return 0;
}
