/* A program that checks its heap while something is put into it and taken out again.
 *
 * injected THREADS [busy | churn | fibers | profiled | saved | words | strict | deny | allow | restart | moved]…: so many threads allocate, move and free blocks whose contents they check. At each line it says how many
 * blocks it has had, `{"blocks":N}`; at `exit` it ends with 0 if everything was right.
 *
 *   busy      the first thread allocates as well, and looks for lines in between
 *   churn     threads, children and programs in children come and go
 *   fibers    each thread goes from one of many stacks to the next, which lie in blocks of malloc, in the middle of its work
 *   profiled  SIGPROF comes every millisecond of processor time, to a handler that looks at the signal mask
 *   saved     the handler saves what it has interrupted in a block of malloc, and the thread goes on with that somewhat later
 *   words     it uses the thread-local words of glibc that nobody uses
 *   strict    seccomp's strict mode; deny, allow: a filter without memfd_create, or one that lets everything through
 *   restart   a filter that kills the process at restart_syscall, and a thread that waits with timeouts
 *   moved     the page that has malloc lies in memory without a file
 *
 * Of more than 64 threads each has fewer blocks, and sleeps most of the time.
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
#include <ucontext.h>
#include <x86intrin.h>

enum { BLOCKS = 512, LARGEST = 6000, THREADS = 512, CROWD = 64, FIBERS = 16, STEPS = 400, STACK = 64 << 10 };

static atomic_ulong blocks, wrong;
static atomic_int ends;
static sigset_t usual_mask;
/* How many of its blocks each thread uses. */
static unsigned used = BLOCKS;

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
    struct block *b = &all[(r >> 8) % used];
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

static void free_all(struct block *all) {
    for (int i = 0; i < BLOCKS; i++) free(all[i].at);
}

/* What a handler has interrupted, as the kernel saves it: it is gone on with from here. */
struct saved {
    unsigned char extended[16 << 10] __attribute__((aligned(64)));
    ucontext_t context;
    char stack[STACK];
};

/* The thread's own, a block of malloc; NULL: its contexts are not saved. */
static __thread struct saved *volatile own_saved;

static void begin_saving(int is_saving) {
    if (is_saving) own_saved = aligned_alloc(64, sizeof(struct saved));
}

static void end_saving(void) {
    struct saved *of = own_saved;
    own_saved = NULL;
    free(of);
}

/* Half a millisecond later the thread goes on with what was interrupted. */
static void go_on(struct saved *of) {
    for (uint64_t until = __rdtsc() + 1000000; __rdtsc() < until;) _mm_pause();
    /* rt_sigreturn */
    __asm__ volatile("mov %0, %%rsp; mov $15, %%eax; syscall" : : "r"(&of->context) : "memory");
    __builtin_unreachable();
}

static void save(ucontext_t *interrupted) {
    struct saved *of = own_saved;
    greg_t *registers = interrupted->uc_mcontext.gregs;
    /* Behind the legacy area stands how much the kernel has saved, if its first word is the magic one. */
    const uint32_t *extended = (const uint32_t *)((char *)interrupted->uc_mcontext.fpregs + 464);
    size_t bytes = extended[0] == 0x46505853 ? extended[1] : 512;
    check(bytes <= sizeof of->extended);
    memcpy(of->extended, interrupted->uc_mcontext.fpregs, bytes);
    of->context = *interrupted;
    of->context.uc_mcontext.fpregs = (fpregset_t)of->extended;
    registers[REG_RIP] = (greg_t)go_on;
    registers[REG_RDI] = (greg_t)of;
    registers[REG_RSP] = (greg_t)(((uintptr_t)of->stack + STACK) & ~(uintptr_t)15) - 8;
    sigaddset(&interrupted->uc_sigmask, SIGPROF);
}

struct fiber {
    ucontext_t context;
    char *stack;
    unsigned state;
    int is_done;
};

static __thread ucontext_t between;
static __thread struct fiber *running;

static void fiber(void) {
    struct block all[BLOCKS] = {{0}};
    struct fiber *own = running;
    for (int i = 0; i < STEPS; i++) {
        step(all, &own->state);
        if (i % 3 == 0) swapcontext(&own->context, &between);
    }
    free_all(all);
    own->is_done = 1;
}

static void run_fiber(struct fiber *of, unsigned seed) {
    if (!of->stack) {
        of->stack = malloc(STACK), of->state = seed, of->is_done = 0;
        getcontext(&of->context);
        of->context.uc_stack = (stack_t){.ss_sp = of->stack, .ss_size = STACK};
        of->context.uc_link = &between;
        makecontext(&of->context, fiber, 0);
    }
    running = of;
    swapcontext(&between, &of->context);
    if (!of->is_done) return;
    free(of->stack);
    of->stack = NULL;
}

static void *fibers(void *seed) {
    struct fiber *all = calloc(FIBERS, sizeof *all);
    unsigned state = (unsigned)(uintptr_t)seed;
    while (!ends)
        for (int i = 0; i < FIBERS; i++) run_fiber(&all[i], draw(&state));
    for (int i = 0; i < FIBERS; i++)
        while (all[i].stack) run_fiber(&all[i], 0);
    free(all);
    return NULL;
}

static int is_saving;

static void *worker(void *seed) {
    struct block all[BLOCKS] = {{0}};
    unsigned state = (unsigned)(uintptr_t)seed;
    begin_saving(is_saving);
    for (int i = 0; !ends; i++) {
        step(all, &state);
        if (used < BLOCKS && i % 50 == 0) usleep(20000);
    }
    end_saving();
    free_all(all);
    return NULL;
}

static void *brief(void *seed) {
    struct block all[BLOCKS] = {{0}};
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 300; i++) step(all, &state);
    free_all(all);
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

static void on_profile(int signal, siginfo_t *information, void *interrupted) {
    (void)signal, (void)information;
    sigset_t now;
    /* Its own signal, and what was blocked before. */
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int of = 1; of < 32; of++)
        if (of != SIGPROF) check(sigismember(&now, of) == sigismember(&usual_mask, of));
    if (own_saved) save(interrupted);
}

static void profile(void) {
    struct sigaction action = {.sa_sigaction = on_profile, .sa_flags = SA_RESTART | SA_SIGINFO};
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

static void *wait_often(void *nothing) {
    while (!ends) check(poll(NULL, 0, 20) == 0);
    return nothing;
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
    static pthread_t threads[THREADS];
    int count = argc > 1 ? atoi(argv[1]) : 0;
    void *(*work)(void *) = is_asked(argc, argv, "fibers") ? fibers : worker;
    int is_busy = is_asked(argc, argv, "busy"), is_strict = is_asked(argc, argv, "strict");
    if (is_asked(argc, argv, "moved")) move();
    if (is_asked(argc, argv, "words")) use_words();
    if (is_asked(argc, argv, "allow")) filter(-1);
    if (is_asked(argc, argv, "deny")) filter(SYS_memfd_create);
    if (is_asked(argc, argv, "restart")) filter(SYS_restart_syscall);
    pthread_sigmask(SIG_SETMASK, NULL, &usual_mask);
    if (count >= THREADS) return 2;
    if (count > CROWD) used = CROWD;
    is_saving = is_asked(argc, argv, "saved");
    begin_saving(is_saving);
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    if (is_asked(argc, argv, "churn")) pthread_create(&threads[count++], NULL, churn, NULL);
    if (is_asked(argc, argv, "restart")) pthread_create(&threads[count++], NULL, wait_often, NULL);
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
