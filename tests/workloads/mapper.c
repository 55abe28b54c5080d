/* Memory that malloc maps, with a hundredth as many mappings of the program's own between; as fast as it can.
 *     mapper HOW TIMES
 * `blocks`: large blocks, some of which realloc moves; `heap`: small ones, for which the heap's end is moved each time; `threads`: large blocks of
 * four threads.
 */
#include "protocol.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
static struct row rows[] = {{"maps", {0}, {0}}};
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* The program's own, half of them unmapped. */
DISTINCT void maps(size_t i) {
    size_t bytes = (2 + i % 5) * PAGE;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(4);
    p[0] = 1;
    pthread_mutex_lock(&counting);
    add(&rows[0].alloc, bytes);
    if (i % 2) {
        if (munmap(p, bytes)) _exit(4);
    } else {
        add(&rows[0].live, bytes);
    }
    pthread_mutex_unlock(&counting);
}

static void blocks(size_t times) {
    for (size_t i = 0; i < times; i++) {
        char *p = malloc(8192 + i % 1000), *q = malloc(20000);
        p[0] = q[0] = 1;
        q = realloc(q, 60000);
        keep(q);
        if (i % 3) free(p), free(q);
        if (i % 100 == 0) maps(i / 100);
    }
}

static void heap(size_t times) {
    for (size_t i = 0; i < times; i++) {
        keep(malloc(5000));
        if (i % 100 == 0) maps(i / 100);
    }
}

static void *thread(void *times) { blocks((size_t)times); return NULL; }
static void threads(size_t times) {
    pthread_t ids[4];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setguardsize(&attributes, 0);
    pthread_attr_setstacksize(&attributes, 64 * PAGE);
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&ids[i], &attributes, thread, (void *)(times / 4))) _exit(4);
    }
    for (int i = 0; i < 4; i++) pthread_join(ids[i], NULL);
    /* The thread library maps stacks for the program, and keeps them. */
    for (int i = 0; i < 4; i++) {
        add(&rows[0].alloc, 64 * PAGE);
        add(&rows[0].live, 64 * PAGE);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t times = (size_t)atol(argv[2]);
    sampling_interval(1);
    await_go();
    if (!strcmp(argv[1], "heap")) {
        mallopt(M_MMAP_THRESHOLD, 1 << 30);
        mallopt(M_TOP_PAD, 0);
        heap(times);
    } else {
        mallopt(M_MMAP_THRESHOLD, 4096);
        mallopt(M_MMAP_MAX, 1 << 20);
        if (!strcmp(argv[1], "blocks")) blocks(times);
        if (!strcmp(argv[1], "threads")) threads(times);
    }
    say_truth(rows, 1);
    await_line();
    return 0;
}
