/* A program that checks its heap while something is put into it and taken out again.
 *
 * injected THREADS [busy | churn | profiled | words | strict | deny | allow | moved]…: so many threads allocate, move and free blocks whose contents they check. At each line it says how many
 * blocks it has had, `{"blocks":N}`; at `exit` it ends with 0 if everything was right.
 *
 *   busy      the first thread allocates as well, and looks for lines in between
 *   churn     threads, children and programs in children come and go
 *   profiled  SIGPROF comes every millisecond of processor time, to a handler that looks at the signal mask
 *   words     it uses the thread-local words of glibc that nobody uses
 *   strict    seccomp's strict mode; deny, allow: a filter without memfd_create, or one that lets everything through
 *   moved     the page that has malloc lies in memory without a file
 */
#include "protocol.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BLOCKS = 512, LARGEST = 6000 };

static atomic_ulong blocks, wrong;
static atomic_int ends;
static sigset_t usual_mask;

struct block { unsigned char *at; size_t size; unsigned char mark; };

static void check(int holds) {
    if (!holds) atomic_fetch_add(&wrong, 1);
}

static unsigned draw(unsigned *state) { return *state = *state * 1664525u + 1013904223u; }

static void check_block(const struct block *b) {
    check(b->at[0] == b->mark && b->at[b->size / 2] == b->mark && b->at[b->size - 1] == b->mark);
}

static void *make(unsigned way, size_t size) {
    void *p = NULL;
    switch (way % 4) {
    case 0: return malloc(size);
    case 1: p = calloc(1, size);
        for (size_t i = 0; p && i < size; i++) check(((unsigned char *)p)[i] == 0);
        return p;
    case 2: return posix_memalign(&p, 64, size) ? NULL : p;
    default: return realloc(NULL, size);
    }
}

static void step(struct block *all, unsigned *state) {
    unsigned r = draw(state);
    struct block *b = &all[(r >> 8) % BLOCKS];
    size_t size = 1 + (r >> 16) % LARGEST;
    if (b->at && r % 3 == 0) {
        check_block(b);
        unsigned char mark = b->mark;
        size_t least = size < b->size ? size : b->size;
        b->at = realloc(b->at, size);
        check(b->at != NULL && b->at[0] == mark && b->at[least - 1] == mark);
    } else {
        if (b->at) check_block(b);
        free(b->at);
        b->at = make(r >> 4, size);
        check(b->at != NULL);
    }
    b->size = size, b->mark = (unsigned char)(r >> 24);
    memset(b->at, b->mark, size);
    atomic_fetch_add(&blocks, 1);
}

static void *worker(void *seed) {
    struct block all[BLOCKS] = {{0}};
    unsigned state = (unsigned)(uintptr_t)seed;
    while (!ends) step(all, &state);
    for (int i = 0; i < BLOCKS; i++) free(all[i].at);
    return NULL;
}

static void *brief(void *seed) {
    struct block all[BLOCKS] = {{0}};
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 300; i++) step(all, &state);
    for (int i = 0; i < BLOCKS; i++) free(all[i].at);
    return NULL;
}

static void expect_success(pid_t child) {
    int status = -1;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Threads, forked children that allocate, and programs that are spawned as libc does it: by a child that shares the memory. */
static void *churn(void *unused) {
    extern char **environ;
    char *const program[] = {"/bin/true", NULL};
    (void)unused;
    for (long round = 0; !ends; round++) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, brief, (void *)(round + i));
        for (long i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        pid_t child = fork();
        if (child == 0) {
            unsigned long before = wrong;
            brief((void *)round);
            _exit(wrong != before);
        }
        expect_success(child);
        check(posix_spawn(&child, program[0], NULL, NULL, program, environ) == 0);
        expect_success(child);
    }
    return NULL;
}

static void on_profile(int signal) {
    (void)signal;
    sigset_t now;
    /* Its own signal, and what was blocked before. */
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int of = 1; of < 32; of++)
        if (of != SIGPROF) check(sigismember(&now, of) == sigismember(&usual_mask, of));
}

static void profile(void) {
    struct sigaction action = {.sa_handler = on_profile, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, NULL);
}

static void filter(int denied) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)denied, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog of = {4, program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &of) == 0);
}

static void move(void) {
    char *page = (char *)((uintptr_t)malloc & ~(uintptr_t)4095);
    char *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, page, 4096);
    mprotect(copy, 4096, PROT_READ | PROT_EXEC);
    check(mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
}

static void use_words(void) { __asm__ volatile("movq $1, %%fs:0x88" : : : "memory"); }

static int is_asked(int argc, char **argv, const char *what) {
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], what) == 0) return 1;
    return 0;
}

/* The next line; the first thread allocates until there is one, if it is busy. */
static int is_told_to_end(int is_busy) {
    static struct block all[BLOCKS];
    static unsigned state = 99;
    static char line[64];
    struct pollfd in = {0, POLLIN, 0};
    while (is_busy && poll(&in, 1, 0) == 0)
        for (int i = 0; i < 100; i++) step(all, &state);
    /* Without a handler there may be no EINTR. */
    ssize_t n = read(0, line, sizeof line - 1);
    check(n > 0);
    return n <= 0 || strncmp(line, "exit", 4) == 0;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 0;
    int is_busy = is_asked(argc, argv, "busy"), is_strict = is_asked(argc, argv, "strict");
    if (is_asked(argc, argv, "moved")) move();
    if (is_asked(argc, argv, "words")) use_words();
    if (is_asked(argc, argv, "allow")) filter(-1);
    if (is_asked(argc, argv, "deny")) filter(SYS_memfd_create);
    pthread_sigmask(SIG_SETMASK, NULL, &usual_mask);
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    if (is_asked(argc, argv, "churn")) pthread_create(&threads[count++], NULL, churn, NULL);
    if (is_asked(argc, argv, "profiled")) profile();
    say("waiting");
    send_line();
    if (is_strict) prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    while (!is_told_to_end(is_busy)) {
        sigset_t now;
        if (!is_strict) {
            pthread_sigmask(SIG_SETMASK, NULL, &now);
            check(sigismember(&now, SIGTERM) == 0 && sigismember(&now, SIGUSR1) == 0);
        }
        say("{\"blocks\":%lu,\"wrong\":%lu}", (unsigned long)blocks, (unsigned long)wrong);
        send_line();
    }
    ends = 1;
    if (is_strict) syscall(SYS_exit, wrong ? 3 : 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return wrong ? 3 : 0;
}
