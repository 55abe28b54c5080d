/* Pairs of malloc and free on some threads, at sixteen places, for `cargo xtask bench tools`.
 *
 * A line with a number is answered by a line once every thread has made so many pairs. Threads live as long as the
 * process, so that their CPU time can be read from outside; nothing else allocates.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 64
#define PLACES 16

static pthread_barrier_t begin, end;
static long pairs;

static inline void keep(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

#define PLACE(n)                                               \
    __attribute__((noipa)) static void place_##n(size_t size) { \
        void *p = malloc(size);                                \
        keep(p);                                               \
        free(p);                                               \
    }
PLACE(0) PLACE(1) PLACE(2) PLACE(3) PLACE(4) PLACE(5) PLACE(6) PLACE(7)
PLACE(8) PLACE(9) PLACE(10) PLACE(11) PLACE(12) PLACE(13) PLACE(14) PLACE(15)

static void (*const places[PLACES])(size_t) = {
    place_0, place_1, place_2,  place_3,  place_4,  place_5,  place_6,  place_7,
    place_8, place_9, place_10, place_11, place_12, place_13, place_14, place_15,
};
static const size_t sizes[PLACES] = {
    16, 24, 32, 48, 64, 64, 96, 128, 160, 200, 256, 320, 512, 1000, 2000, 4000,
};

static void *work(void *argument) {
    uint64_t state = 88172645463325252u + (uintptr_t)argument;
    for (;;) {
        pthread_barrier_wait(&begin);
        for (long i = 0; i < pairs; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            unsigned place = state % PLACES;
            places[place](sizes[place]);
        }
        pthread_barrier_wait(&end);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1;
    if (threads < 1 || threads > THREADS_MAX) return 2;
    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&end, NULL, (unsigned)threads + 1);
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(uintptr_t)i) != 0) return 1;
    }
    char line[32];
    for (;;) {
        size_t length = 0;
        do {
            if (length + 1 >= sizeof line || read(0, line + length, 1) != 1) _exit(0);
        } while (line[length++] != '\n');
        line[length] = 0;
        pairs = atol(line);
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        if (write(1, "done\n", 5) != 5) _exit(1);
    }
}
