/* Nothing odd: calls that go on for ever, blocks that are kept. */

/* A block every millisecond until the tests end it; says so before, since nobody knows when. */
DISTINCT void ticking(void) {
    void *p = malloc(100);
    keep(p);
    free(p);
}

static void case_ticks(void) {
    say_truth(rows, 0);
    for (;;) {
        ticking();
        usleep(argument ? (useconds_t)atoi(argument) : 1000);
    }
}

/* ARGUMENT blocks of 64 bytes, all kept. */
DISTINCT void many_kept(void) {
    long count = argument ? atol(argument) : 1000;
    for (long i = 0; i < count; i++) {
        keep(malloc(64));
        TOOK(64);
    }
}

static void case_keep(void) { many_kept(); }
