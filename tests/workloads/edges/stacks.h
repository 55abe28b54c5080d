/* Stacks through a signal, deep ones, many different ones. */
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

DISTINCT void alloc_in_handler(void) {
    keep(malloc(432));
    TOOK(432);
}

DISTINCT void on_signal(int number) {
    alloc_in_handler();
    keep(&number);
}

DISTINCT void raises_here(void) {
    CHECK(raise(SIGUSR1) == 0);
    keep(&rows);
}

static void case_signal(void) {
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raises_here();
}

DISTINCT void deepest(void) {
    keep(malloc(345));
    TOOK(345);
}

/* More than 256 bytes of stack for each level. */
DISTINCT void descend(int levels) {
    char *frame = alloca(256);
    keep(frame);
    if (levels) descend(levels - 1);
    else deepest();
    keep(frame);
}

static void case_deep(void) { descend(argument ? atoi(argument) : 600); }

/* The same depth on stacks of other kinds: another thread's, one of the program's own in its data, one inside the thread's stack. The outermost
   function says which. */
#define LEVELS 40
static ucontext_t outside, inside;

static void *on_thread(void *unused) {
    descend(LEVELS);
    return unused;
}

static void on_own_stack(void) { descend(LEVELS); }

DISTINCT void switch_to(void *stack, size_t bytes) {
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = bytes;
    inside.uc_link = &outside;
    makecontext(&inside, on_own_stack, 0);
    CHECK(swapcontext(&outside, &inside) == 0);
}

static void *on_part_of_thread(void *unused) {
    char part[64 * 1024];
    switch_to(part, sizeof part);
    return unused;
}

static void case_kinds(void) {
    static char own[64 * 1024];
    pthread_t t;
    CHECK(pthread_create(&t, NULL, on_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
    switch_to(own, sizeof own);
    CHECK(pthread_create(&t, NULL, on_part_of_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
}

/* 4,096 different stacks: the path through left and right says which. */
DISTINCT void leaf(size_t path) {
    size_t size = 16 + path;
    keep(malloc(size));
    TOOK(size);
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

static void case_stacks(void) { left(12, 0); }
