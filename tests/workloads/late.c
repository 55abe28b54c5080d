/* late LIBRARY [before | after]: opens another allocator, before its mark or after it, and allocates by malloc and by the address of that one's malloc. */
#include "protocol.h"
#include <dlfcn.h>

enum { COUNT = 50, SIZE = 1000 };

static struct row rows[] = {{.name = "by_malloc"}, {.name = "by_address"}};
static void *(*other_malloc)(size_t);
static void (*other_free)(void *);

static void took(struct row *of, void *p, int is_kept) {
    if (!p) _exit(3);
    memset(p, 7, SIZE);
    add(&of->alloc, SIZE);
    if (is_kept) add(&of->live, SIZE);
}

DISTINCT void by_malloc(int is_kept) {
    void *p = malloc(SIZE);
    took(&rows[0], p, is_kept);
    if (!is_kept) free(p);
}

DISTINCT void by_address(int is_kept) {
    void *p = other_malloc(SIZE);
    took(&rows[1], p, is_kept);
    if (!is_kept) other_free(p);
}

static void open_other(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say("%s", dlerror());
        send_line();
        _exit(4);
    }
    other_malloc = (void *(*)(size_t))dlsym(library, "malloc");
    other_free = (void (*)(void *))dlsym(library, "free");
    if (!other_malloc || other_malloc == malloc || !other_free) _exit(5);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int is_before = strcmp(argv[2], "before") == 0;
    if (is_before) open_other(argv[1]);
    sampling_interval(1);
    await_go();
    for (int i = 0; i < COUNT; i++) by_malloc(i % 2);
    if (!is_before) open_other(argv[1]);
    for (int i = 0; i < COUNT; i++) by_address(i % 2), by_malloc(i % 2);
    say_truth(rows, 2);
    await_line();
    return 0;
}
