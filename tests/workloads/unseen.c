/* Holds 64 MiB that it writes to: by malloc, or mapped past the C library as an allocator does that nobody knows. */
#include "protocol.h"
#include <sys/mman.h>
#include <sys/syscall.h>

#define BYTES ((size_t)64 << 20)

static struct row rows[1] = {{.name = "keep_block"}};

DISTINCT void *keep_block(int by_malloc) {
    if (!by_malloc) return (void *)syscall(SYS_mmap, NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    add(&rows[0].alloc, BYTES);
    add(&rows[0].live, BYTES);
    return malloc(BYTES);
}

int main(int count, char **arguments) {
    sampling_interval(1);
    await_go();
    char *p = keep_block(count > 1 && strcmp(arguments[1], "malloc") == 0);
    if (p == NULL || p == MAP_FAILED) return 3;
    memset(p, 1, BYTES);
    keep(p);
    say_truth(rows, 1);
    await_line();
    return 0;
}
