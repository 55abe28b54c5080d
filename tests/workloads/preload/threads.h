/* Threads that come and go, that free what others have allocated, and that are interrupted. */

static void *of_short_life(void *blocks) {
    void **all = blocks;
    for (size_t i = 0; i < 10; i++) all[i] = made(100 + i * 50);
    return NULL;
}

/* 10,000 threads; what each has allocated is freed by another. */
static void case_threads(void) {
    size_t bytes = 0;
    static void *blocks[50][10];
    for (int round = 0; round < 200; round++) {
        pthread_t threads[50];
        for (int i = 0; i < 50; i++) CHECK(pthread_create(threads + i, NULL, of_short_life, blocks[i]) == 0);
        for (int i = 0; i < 50; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        for (int i = 0; i < 50; i++)
            for (int k = 0; k < 10; k++) bytes += ended(blocks[i][k]);
    }
    printf("threads %zu\n", bytes);
}

static atomic_long interrupted;

static void interrupt(int signal) {
    (void)signal;
    interrupted++;
}

static void case_signals(void) {
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 200}, {0, 200}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    size_t bytes = 0;
    unsigned state = 1;
    void *blocks[256] = {0};
    for (int i = 0; i < 400000; i++) {
        unsigned at = next(&state) % 256;
        if (blocks[at]) bytes += ended(blocks[at]);
        blocks[at] = made(next(&state) % 300);
    }
    for (int i = 0; i < 256; i++)
        if (blocks[i]) bytes += ended(blocks[i]);
    struct itimerval never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(interrupted > 10);
    printf("signals %zu\n", bytes);
}

/* Until it is killed. */
static void case_busy(void) {
    printf("busy\n");
    fflush(stdout);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) CHECK(pthread_create(threads + i, NULL, allocating, (void *)i) == 0);
    allocating((void *)(uintptr_t)9);
}
