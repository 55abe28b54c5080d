/* The process beside a hostile one: allocates without end under functions whose names are known. */
#include "protocol.h"

DISTINCT void honest_inner(void) { free(malloc(1000)); keep(NULL); }
DISTINCT void honest_outer(void) { honest_inner(); keep(NULL); }

int main(void) {
    await_go();
    for (;;) {
        for (int i = 0; i < 200; i++) honest_outer();
        usleep(1000);
    }
}
