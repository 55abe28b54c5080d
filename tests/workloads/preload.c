/* What a preloaded malloc has to live through: preload CASE [ARGUMENT]. Each case checks the contents of its blocks, prints what it counted
 * (the same with and without the library), and ends with 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
            _exit(3);                                                          \
        }                                                                      \
    } while (0)

static const char *self_path, *argument;

/* A block knows its size, and its bytes follow from that. */
static void *made(size_t size) {
    size_t *p = malloc(size + sizeof size);
    CHECK(p);
    *p = size;
    memset(p + 1, (int)(size * 31 + 7) & 0xff, size);
    return p;
}

static size_t checked(void *block) {
    size_t size = *(size_t *)block;
    unsigned char *bytes = (unsigned char *)((size_t *)block + 1);
    for (size_t i = 0; i < size; i++) CHECK(bytes[i] == (unsigned char)(size * 31 + 7));
    return size;
}

static size_t ended(void *block) {
    size_t size = checked(block);
    free(block);
    return size;
}

static unsigned next(unsigned *state) { return *state = *state * 1664525u + 1013904223u, *state >> 8; }

#include "preload/life.h"
#include "preload/children.h"
#include "preload/threads.h"
#include "preload/calls.h"

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"life", case_life},       {"fork", case_fork},     {"vfork", case_vfork},   {"spawn", case_spawn},
    {"exec", case_exec},       {"dlopen", case_dlopen}, {"threads", case_threads}, {"signals", case_signals},
    {"calls", case_calls},     {"errno", case_errno},   {"busy", case_busy},
};

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    self_path = argv[0];
    argument = argc > 2 ? argv[2] : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1])) continue;
        cases[i].run();
        fflush(stdout);
        return 0;
    }
    return 2;
}
