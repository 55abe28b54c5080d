/* More than 100,000 different stacks, each with a block that is held: the path through left and right says which. */
#include "protocol.h"

enum { LEVELS = 17, PAUSE_EVERY = 64 };
static int made;

DISTINCT void leaf(size_t path) {
    keep(malloc(16 + path % 512));
    /* Nobody keeps up with more: the stacks are what counts here. */
    if (++made % PAUSE_EVERY == 0) usleep(2000);
}

DISTINCT void left(int levels, size_t path);
DISTINCT void right(int levels, size_t path);
DISTINCT void left(int levels, size_t path) {
    if (levels == 0) { leaf(path); return; }
    left(levels - 1, path * 2);
    right(levels - 1, path * 2 + 1);
    keep(&levels);
}
DISTINCT void right(int levels, size_t path) {
    if (levels == 0) { leaf(path); return; }
    left(levels - 1, path * 2);
    right(levels - 1, path * 2 + 1);
    keep(&levels);
}

int main(void) {
    await_go();
    left(LEVELS, 0);
    say_truth(NULL, 0);
    await_line();
    return 0;
}
