/* A program of a build machine: allocates at 64 different stacks, frees most, and ends. */
#include "protocol.h"

#define BITS 6

static int left(int number, int depth);
static int right(int number, int depth);

static int descend(int number, int depth) {
    if (depth == BITS) {
        void *block = malloc(64 + number);
        keep(block);
        if (number % 16) free(block);
        return 1;
    }
    return (number >> depth & 1 ? right(number, depth + 1) : left(number, depth + 1)) + 1;
}

DISTINCT static int left(int number, int depth) { return descend(number, depth) + 1; }
DISTINCT static int right(int number, int depth) { return descend(number, depth) + 2; }

int main(void) {
    for (int number = 0; number < 1 << BITS; number++) descend(number, 0);
    return 0;
}
