/* Fills the tables of whoever profiles it. `stacks`: another stack with each allocation, without end. `files FILE COUNT`: so many copies of a
 * file mapped executable and deleted, and calls through all of them. `late-files`: the same, mapped later. */
#include "protocol.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DEPTH 40

static void left(uint64_t path, int depth);
static void right(uint64_t path, int depth);

/* Each bit of the path is a call of one of two functions. */
static void go_on(uint64_t path, int depth) {
    if (depth == 0) free(malloc(64));
    else if (path & 1) left(path >> 1, depth - 1);
    else right(path >> 1, depth - 1);
    keep(&depth);
}
DISTINCT static void left(uint64_t path, int depth) { go_on(path, depth); keep(NULL); }
DISTINCT static void right(uint64_t path, int depth) { go_on(path, depth); keep(NULL); }

typedef void *(*caller)(void *(*)(size_t), size_t);

static caller copy(int file, int number) {
    static char bytes[1 << 16];
    char path[64];
    ssize_t length = pread(file, bytes, sizeof bytes, 0);
    snprintf(path, sizeof path, "/tmp/bomb-%d-%d", (int)getpid(), number);
    int out = open(path, O_CREAT | O_RDWR | O_EXCL, 0755);
    if (length <= 0 || out < 0 || write(out, bytes, length) != length) _exit(4);
    struct stat status;
    /* What follows is a hole, as in the file. */
    if (fstat(file, &status) || ftruncate(out, status.st_size)) _exit(6);
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, out, 4096);
    if (code == MAP_FAILED || unlink(path) || close(out)) _exit(5);
    return (caller)code;
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    if (!strcmp(argv[1], "stacks")) {
        await_go();
        for (uint64_t path = 0;; path++) go_on(path * 0x9e3779b97f4a7c15 >> 24, DEPTH);
    }
    int count = argc > 3 ? atoi(argv[3]) : 0, file = argc > 3 ? open(argv[2], O_RDONLY) : -1;
    caller *callers = calloc(count + 1, sizeof *callers);
    int is_late = !strcmp(argv[1], "late-files");
    if (is_late) await_go();
    for (int i = 0; i < count; i++) callers[i] = copy(file, i);
    if (!is_late) await_go();
    for (;;) {
        for (int i = 0; i < count; i++) free(callers[i](malloc, 1000));
        usleep(1000);
    }
}
