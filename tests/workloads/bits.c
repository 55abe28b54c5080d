/* As many different stacks as there are numbers of so many bits: each bit is a call from one of two places. Argument: the bits. */
#include "protocol.h"

static struct row rows[] = {{.name = "leaf"}};

DISTINCT void leaf(void) {
    keep(malloc(64));
    add(&rows[0].alloc, 64);
    add(&rows[0].live, 64);
}

DISTINCT void descend(unsigned long number, unsigned bits) {
    if (bits == 0) {
        leaf();
        __asm__ volatile("# a leaf");
    } else if (number & 1) {
        descend(number >> 1, bits - 1);
        __asm__ volatile("# a bit that is set"); /* What differs keeps the compiler from joining both calls. */
    } else {
        descend(number >> 1, bits - 1);
        __asm__ volatile("# a bit that is not set");
    }
}

int main(int count, char **arguments) {
    sampling_interval(1);
    unsigned bits = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 1;
    await_go();
    for (unsigned long number = 0; number < 1ul << bits; number++) descend(number, bits);
    say_truth(rows, 1);
    await_line();
    return 0;
}
