/* Eight threads that pass pointers around: each takes what another has put into a shared place, frees it or reallocates it, and
 * puts a block of its own there. At rest what is held is what lies in the places.
 *
 *   passed OPERATIONS    of each thread
 */
#include "protocol.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define PLACES 256

static _Atomic(void *) places[PLACES];
static long operations;
static struct sums of_thread[THREADS];

static unsigned next(unsigned *state) { return *state = *state * 1664525u + 1013904223u, *state >> 8; }

static size_t some(unsigned *state) { return sizeof(size_t) + next(state) % 600; }

static void *labelled(void *block, size_t size, struct sums *sums) {
    if (!block) _exit(3);
    add(sums, size);
    *(size_t *)block = size;
    return block;
}

DISTINCT static void *passing(void *number) {
    unsigned state = (unsigned)(uintptr_t)number * 77 + 5;
    struct sums *sums = &of_thread[(uintptr_t)number];
    for (long i = 0; i < operations; i++) {
        unsigned at = next(&state) % PLACES;
        void *mine = atomic_exchange(&places[at], NULL);
        size_t size = some(&state);
        if (mine && next(&state) % 3 == 0) {
            free(mine);
            mine = NULL;
        }
        void *fresh = mine ? realloc(mine, size) : malloc(size);
        free(atomic_exchange(&places[at], labelled(fresh, size, sums)));
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    operations = atol(argv[1]);
    sampling_interval(1);
    await_go();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(threads + i, NULL, passing, (void *)i)) return 3;
    static struct row row = {.name = "passing"};
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        add_sums(&row.alloc, &of_thread[i]);
    }
    for (int i = 0; i < PLACES; i++)
        if (places[i]) add(&row.live, *(size_t *)places[i]);
    say_truth(&row, 1);
    await_line();
    return 0;
}
