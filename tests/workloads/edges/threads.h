/* Threads that outlive the first one, or hop from CPU to CPU. */
#include <pthread.h>
#include <sched.h>

DISTINCT void survivor_alloc(void) {
    for (int i = 0; i < 100; i++) {
        keep(malloc(640));
        TOOK(640);
    }
}

static pthread_t leader;
static void *survivor(void *unused) {
    (void)unused;
    CHECK(pthread_join(leader, NULL) == 0);
    survivor_alloc();
    say_truth(rows, row_count);
    await_line();
    _exit(0);
}

static void *leave(void *unused) { pthread_exit(unused); }

/* The first pthread_exit of a process loads libgcc_s, which allocates. */
static void prepare_leader(void) {
    pthread_t t;
    CHECK(pthread_create(&t, NULL, leave, NULL) == 0 && pthread_join(t, NULL) == 0);
}

/* The main thread is gone, the process is not. */
static void case_leader(void) {
    pthread_t t;
    leader = pthread_self();
    CHECK(pthread_create(&t, NULL, survivor, NULL) == 0);
    pthread_exit(NULL);
}

enum { STORM_THREADS = 6, STORM_CALLS = 60000 };
static struct row storm_rows[STORM_THREADS];
static pthread_barrier_t storm_start, storm_done;

DISTINCT void storm_alloc(struct row *mine, size_t size) {
    void *p = malloc(size);
    add(&mine->alloc, size);
    keep(p);
    free(p);
}

/* Hops from CPU to CPU in the middle of its calls. */
static void *storm(void *index) {
    struct row *mine = &storm_rows[(intptr_t)index];
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    pthread_barrier_wait(&storm_start);
    for (int i = 0; i < STORM_CALLS; i++) {
        if (i % 32 == 0) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET((i / 32 + (int)(intptr_t)index) % cpus, &set);
            sched_setaffinity(0, sizeof set, &set);
        }
        storm_alloc(mine, 16 + (size_t)(i * 37) % 5000);
    }
    pthread_barrier_wait(&storm_done);
    for (;;) pause();
    return NULL;
}

static void prepare_storm(void) {
    if (argument) sampling_interval(strtod(argument, NULL));
    pthread_barrier_init(&storm_start, NULL, STORM_THREADS + 1);
    pthread_barrier_init(&storm_done, NULL, STORM_THREADS + 1);
    for (intptr_t i = 0; i < STORM_THREADS; i++) {
        pthread_t t;
        CHECK(pthread_create(&t, NULL, storm, (void *)i) == 0);
    }
}

static void case_storm(void) {
    pthread_barrier_wait(&storm_start);
    pthread_barrier_wait(&storm_done);
    for (int i = 0; i < STORM_THREADS; i++)
        add_sums(&row("storm_alloc")->alloc, &storm_rows[i].alloc);
}
