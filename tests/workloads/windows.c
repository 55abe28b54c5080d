/* Phases: each line lets the next one run, which then says the truth so far: what every phase has allocated, and holds now.
 * The row `peak` holds the largest live total so far.
 */
#include "protocol.h"

static struct row rows[] = {{"first", {0}, {0}}, {"second", {0}, {0}}, {"third", {0}, {0}}, {"peak", {0}, {0}}};
static void *blocks[512];
static size_t sizes[512], owners[512], count;
static uint64_t held;

static void *took(void *p, size_t owner, size_t size) {
    keep(p);
    add(&rows[owner].alloc, size);
    add(&rows[owner].live, size);
    held += size;
    if (held > rows[3].live.bytes) rows[3].live.bytes = held;
    blocks[count] = p;
    sizes[count] = size;
    owners[count++] = owner;
    return p;
}

/* Frees the newest blocks down to `left`. */
static void give(size_t left) {
    while (count > left) {
        count--;
        free(blocks[count]);
        rows[owners[count]].live.objects -= 1;
        rows[owners[count]].live.bytes -= sizes[count];
        held -= sizes[count];
    }
}

DISTINCT void *first(size_t size) { void *p = malloc(size); return took(p, 0, size); }
DISTINCT void *second(size_t size) { void *p = malloc(size); return took(p, 1, size); }
DISTINCT void *third(size_t size) { void *p = malloc(size); return took(p, 2, size); }

int main(void) {
    sampling_interval(1);
    await_go();
    for (int i = 0; i < 100; i++) first(1000);
    for (int i = 0; i < 50; i++) first(3000);
    give(100);
    say_truth(rows, 4);
    await_line();
    for (int i = 0; i < 200; i++) second(500);
    give(250);
    say_truth(rows, 4);
    await_line();
    for (int i = 0; i < 30; i++) third(100000);
    give(260);
    say_truth(rows, 4);
    await_line();
    return 0;
}
