/* An allocator in the program, and the program itself, which map by one function as fast as they can.
 *     either TIMES
 */
#include "protocol.h"
#include <sys/mman.h>

#define PAGE ((size_t)4096)
static struct row rows[] = {{"maps", {0}, {0}}};

DISTINCT void *map_pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(4);
    return p;
}

/* By its name an allocator's: where mimalloc gets its memory. */
DISTINCT void *_mi_os_alloc(size_t bytes) { void *p = map_pages(bytes); keep(p); return p; }

/* The program's own. */
DISTINCT void *maps(size_t bytes) {
    void *p = map_pages(bytes);
    add(&rows[0].alloc, bytes);
    add(&rows[0].live, bytes);
    return p;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    size_t times = (size_t)atol(argv[1]);
    sampling_interval(1);
    await_go();
    for (size_t i = 0; i < times; i++) {
        keep(_mi_os_alloc(3 * PAGE));
        if (i % 10 == 0) keep(maps((2 + i % 3) * PAGE));
    }
    say_truth(rows, 1);
    await_line();
    return 0;
}
