/* One case by name: edges CASE [ARGUMENT]. Each states what it allocated and still holds.
 *
 * For runs in which every allocation is sampled: the profile must then equal the truth.
 */
#include "protocol.h"
#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct row rows[64];
static size_t row_count;
static const char *self_path, *argument;
/* The compiler must not see which sizes cannot succeed. */
static volatile size_t huge = (size_t)1 << 62;

static struct row *row(const char *name) {
    for (size_t i = 0; i < row_count; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    rows[row_count].name = name;
    return &rows[row_count++];
}

static void fail(const char *why) {
    say("{\"error\":\"%s\"}", why);
    send_line();
    _exit(3);
}

#define CHECK(condition) do { if (!(condition)) fail(#condition); } while (0)
/* The rest of the function's name is its row's. */
#define TOOK(size) (add(&row(__func__)->alloc, size), add(&row(__func__)->live, size))
#define GAVE(size) gave(row(__func__), size)

static void gave(struct row *r, size_t size) {
    r->live.objects -= 1;
    r->live.bytes -= size;
}

/* -- realloc ------------------------------------------------------------------------------- */

DISTINCT void realloc_fails(void) {
    char *p = malloc(1000);
    TOOK(1000);
    CHECK(realloc(p, huge) == NULL && errno == ENOMEM);
    keep(p);
}

DISTINCT void realloc_fails_then_freed(void) {
    char *p = malloc(1008);
    TOOK(1008);
    CHECK(realloc(p, huge) == NULL);
    free(p);
    GAVE(1008);
}

DISTINCT void realloc_shrinks(void) {
    char *p = malloc(10000);
    TOOK(10000);
    char *q = realloc(p, 100);
    CHECK(q == p);
    GAVE(10000);
    TOOK(100);
}

DISTINCT void realloc_in_place(void) {
    char *p = malloc(100);
    TOOK(100);
    char *q = realloc(p, 104);
    CHECK(q == p);
    GAVE(100);
    TOOK(104);
}

DISTINCT void realloc_moves(void) {
    char *p = malloc(3000);
    TOOK(3000);
    char *wall = malloc(3000);
    TOOK(3000);
    char *q = realloc(p, 50000);
    CHECK(q != p);
    keep(wall);
    GAVE(3000);
    TOOK(50000);
}

DISTINCT void realloc_mremaps(void) {
    char *p = malloc(1 << 20);
    TOOK(1 << 20);
    char *q = realloc(p, 2 << 20);
    CHECK(q != NULL);
    GAVE(1 << 20);
    TOOK(2 << 20);
}

DISTINCT void realloc_null(void) {
    keep(realloc(NULL, 77));
    TOOK(77);
}

DISTINCT void realloc_zero(void) {
    char *p = malloc(55);
    TOOK(55);
    CHECK(realloc(p, 0) == NULL);
    GAVE(55);
}

DISTINCT void reallocarray_grows(void) {
    char *p = malloc(100);
    TOOK(100);
    keep(reallocarray(p, 30, 50));
    GAVE(100);
    TOOK(1500);
}

DISTINCT void reallocarray_null(void) {
    keep(reallocarray(NULL, 3, 11));
    TOOK(33);
}

DISTINCT void reallocarray_overflows(void) {
    char *p = malloc(200);
    TOOK(200);
    CHECK(reallocarray(p, huge, 8) == NULL && errno == ENOMEM);
    keep(p);
}

static void case_realloc(void) {
    realloc_fails();
    realloc_fails_then_freed();
    realloc_shrinks();
    realloc_in_place();
    realloc_moves();
    realloc_mremaps();
    realloc_null();
    realloc_zero();
    reallocarray_grows();
    reallocarray_null();
    reallocarray_overflows();
}

/* -- aligned ------------------------------------------------------------------------------- */

DISTINCT void memalign_invalid(void) {
    void *p = (void *)1;
    CHECK(posix_memalign(&p, 3, 100) == EINVAL);
    CHECK(p == (void *)1);
    row(__func__);
}

DISTINCT void memalign_no_memory(void) {
    void *p = NULL;
    CHECK(posix_memalign(&p, 64, huge) == ENOMEM);
    CHECK(posix_memalign(&p, 8, huge) == ENOMEM);
    CHECK(aligned_alloc(64, huge) == NULL);
    CHECK(valloc(huge) == NULL);
    row(__func__);
}

DISTINCT void memalign_small_alignment(void) {
    void *p = NULL;
    CHECK(posix_memalign(&p, 8, 24) == 0);
    TOOK(24);
    CHECK(posix_memalign(&p, 16, 40) == 0);
    TOOK(40);
    keep(aligned_alloc(16, 48));
    TOOK(48);
    keep(memalign(8, 56));
    TOOK(56);
}

DISTINCT void memalign_large_alignment(void) {
    void *p = NULL;
    CHECK(posix_memalign(&p, 64, 1000) == 0);
    TOOK(1000);
    CHECK(posix_memalign(&p, 4096, 10000) == 0);
    TOOK(10000);
    free(p);
    GAVE(10000);
    keep(aligned_alloc(128, 256));
    TOOK(256);
    p = memalign(1 << 16, 300);
    TOOK(300);
    free(p);
    GAVE(300);
}

DISTINCT void page_aligned(void) {
    keep(valloc(123));
    TOOK(123);
    void *p = pvalloc(100);
    TOOK(100);
    free(p);
    GAVE(100);
}

static void case_aligned(void) {
    memalign_invalid();
    memalign_no_memory();
    memalign_small_alignment();
    memalign_large_alignment();
    page_aligned();
}

/* -- odd calls ----------------------------------------------------------------------------- */

DISTINCT void calloc_overflows(void) {
    CHECK(calloc(huge, 8) == NULL && errno == ENOMEM);
    CHECK(calloc(huge, 1) == NULL);
    row(__func__);
}

DISTINCT void calloc_plain(void) {
    keep(calloc(7, 13));
    TOOK(91);
    void *p = calloc(1, 300000);
    TOOK(300000);
    free(p);
    GAVE(300000);
    keep(calloc(0, 5));
    TOOK(0);
}

DISTINCT void malloc_zero(void) {
    keep(malloc(0));
    TOOK(0);
    void *p = malloc(0);
    TOOK(0);
    free(p);
    GAVE(0);
}

DISTINCT void malloc_huge(void) {
    for (int i = 0; i < 10; i++) CHECK(malloc(huge) == NULL);
    row(__func__);
}

DISTINCT void free_null(void) {
    for (int i = 0; i < 10; i++) free(NULL);
    row(__func__);
}

DISTINCT void copies_string(void) {
    keep(strdup("twenty-one characters"));
    TOOK(22);
}

static void case_odd(void) {
    calloc_overflows();
    calloc_plain();
    malloc_zero();
    malloc_huge();
    free_null();
    copies_string();
}

/* -- processes ----------------------------------------------------------------------------- */

DISTINCT void *before_fork(size_t size) {
    void *p = malloc(size);
    TOOK(size);
    return p;
}

DISTINCT void *in_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

static void reap(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The child frees its copies of the parent's blocks and allocates: nothing of it is the parent's. */
static void case_fork(void) {
    void *p = before_fork(5000), *q = before_fork(6000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(p);
        free(in_child(7000));
        in_child(8000);
        keep(realloc(q, 20000));
        _exit(0);
    }
    reap(child);
    free(before_fork(9000));
    gave(row("before_fork"), 9000);
    row("in_child");
}

/* A vfork child's exit and exec are not its parent's, though they share the address space. */
static void case_vfork(void) {
    before_fork(5000);
    pid_t child = vfork();
    if (child == 0) _exit(0);
    CHECK(child > 0);
    reap(child);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(child > 0);
    reap(child);
    before_fork(6000);
}

DISTINCT void old_image(void) {
    keep(malloc(40000));
    TOOK(40000);
}

DISTINCT void new_image(void) {
    keep(malloc(30000));
    TOOK(30000);
}

/* execve of itself as case exec2, which asks to go on a second time. */
static void case_exec(void) {
    old_image();
    execl(self_path, self_path, "exec2", (char *)NULL);
    fail("execl");
}

static void case_exec2(void) { new_image(); }

/* -- threads ------------------------------------------------------------------------------- */

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

/* -- stacks -------------------------------------------------------------------------------- */

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

/* ARGUMENT is a shared object with `void *library_alloc(size_t)`, loaded after the mark. */
static void case_dlopen(void) {
    void *library = dlopen(argument, RTLD_NOW);
    CHECK(library != NULL);
    void *(*library_alloc)(size_t) = (void *(*)(size_t))dlsym(library, "library_alloc");
    CHECK(library_alloc != NULL);
    for (int i = 0; i < 10; i++) keep(library_alloc(2222));
    struct row *r = row("library_alloc");
    for (int i = 0; i < 10; i++) add(&r->alloc, 2222), add(&r->live, 2222);
}

DISTINCT void called_by_jit(void) {
    keep(malloc(987));
    TOOK(987);
}

static void (*jitted)(void (*)(void));

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret: no unwind information, but a perf map. */
static void prepare_jit(void) {
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memcpy(p, code, sizeof code);
    jitted = (void (*)(void (*)(void)))(void *)p;
    static char text[256];
    snprintf(text, sizeof text, "/tmp/perf-%d.map", (int)getpid());
    int fd = open(text, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    int n = snprintf(text, sizeof text, "%lx %lx jitted_function\n", (unsigned long)p, sizeof code);
    CHECK(fd >= 0 && write(fd, text, (size_t)n) == n && close(fd) == 0);
}

static void case_jit(void) { jitted(called_by_jit); }

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

/* ------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*prepare)(void), (*run)(void);
} cases[] = {
    {"realloc", NULL, case_realloc},    {"aligned", NULL, case_aligned},
    {"odd", NULL, case_odd},            {"fork", NULL, case_fork},
    {"vfork", NULL, case_vfork},        {"exec", NULL, case_exec},
    {"exec2", NULL, case_exec2},        {"leader", prepare_leader, case_leader},
    {"storm", prepare_storm, case_storm}, {"signal", NULL, case_signal},
    {"deep", NULL, case_deep},          {"stacks", NULL, case_stacks},
    {"dlopen", NULL, case_dlopen},      {"jit", prepare_jit, case_jit},
    {"ticks", NULL, case_ticks},        {"keep", NULL, case_keep},
};

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    self_path = argv[0];
    argument = argc > 2 ? argv[2] : NULL;
    sampling_interval(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1])) continue;
        if (cases[i].prepare) cases[i].prepare();
        await_go();
        cases[i].run();
        say_truth(rows, row_count);
        await_line();
        return 0;
    }
    return 2;
}
