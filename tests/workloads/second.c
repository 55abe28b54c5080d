/* second LIBC: loads a second allocator (a copy of libc in a namespace of its own) while it is profiled, and allocates from it. */
#include "protocol.h"
#include <dlfcn.h>

static void *(*other_malloc)(size_t);

DISTINCT void *second_alloc(size_t size) {
    void *p = other_malloc(size);
    keep(p);
    return p;
}

static void wait_line(const char *what) {
    char c;
    if (write(1, what, strlen(what)) < 0) _exit(4);
    do {
        if (read(0, &c, 1) != 1) _exit(4);
    } while (c != '\n');
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    keep(malloc(100));
    wait_line("waiting\n");
    void *library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    other_malloc = (void *(*)(size_t))dlsym(library, "malloc");
    if (!other_malloc) return 3;
    wait_line("opened\n");
    for (int i = 0; i < 1000; i++) second_alloc(40960);
    wait_line("allocated\n");
    return 0;
}
