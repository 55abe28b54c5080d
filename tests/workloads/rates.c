/* Phases in which 48 functions allocate blocks of 16 KiB, as many each as the arguments say; every fourth block is kept. Each line lets the
 * next phase run, which then says the truth so far.
 */
#include "protocol.h"

#define SIZE 16384
#define KEPT_EVERY 4

#define EACH(X) \
    X(f00) X(f01) X(f02) X(f03) X(f04) X(f05) X(f06) X(f07) X(f08) X(f09) X(f10) X(f11) X(f12) X(f13) X(f14) X(f15) \
    X(f16) X(f17) X(f18) X(f19) X(f20) X(f21) X(f22) X(f23) X(f24) X(f25) X(f26) X(f27) X(f28) X(f29) X(f30) X(f31) \
    X(f32) X(f33) X(f34) X(f35) X(f36) X(f37) X(f38) X(f39) X(f40) X(f41) X(f42) X(f43) X(f44) X(f45) X(f46) X(f47)

#define ALLOCATE(name) DISTINCT void *name(void) { void *p = malloc(SIZE); keep(p); return p; }
EACH(ALLOCATE)

#define NAMED(name) {#name, {0}, {0}},
static struct row rows[] = {EACH(NAMED)};

#define POINTER(name) name,
static void *(*const functions[])(void) = {EACH(POINTER)};

int main(int argc, char **argv) {
    sampling_interval(65536);
    await_go();
    size_t count = sizeof rows / sizeof *rows;
    for (int phase = 1; phase < argc; phase++) {
        long blocks = atol(argv[phase]);
        for (long block = 0; block < blocks; block++)
            for (size_t i = 0; i < count; i++) {
                void *p = functions[i]();
                add(&rows[i].alloc, SIZE);
                if (block % KEPT_EVERY == 0)
                    add(&rows[i].live, SIZE);
                else
                    free(p);
            }
        say_truth(rows, count);
        await_line();
    }
    return 0;
}
