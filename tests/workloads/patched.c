/* A program that patches a function of the C library in memory, as in-process instrumentation does, and checks that its hook is called at every call.
 *
 * FUNCTION WAY WHEN: `malloc`, `free`, `mmap`, `munmap` or `none`; `near` (jump of 5 bytes), `far` (13 bytes), `short` (2 bytes, to a jump in the padding before the function) or
 * `trap` (a breakpoint that it handles); `before` its first mark, or `after` it, followed by a second one.
 */
#include "protocol.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define PAGE ((uintptr_t)4096)
/* Few enough for the stack of every call of mmap and munmap to be kept. */
enum { ROUNDS = 100, BLOCKS = 32, MAPS = 16 };
enum { BLOCK_BYTES = 100000, MAP_BYTES = 1 << 16 };

enum { HOLDS, MAPPED, ROWS };
static struct row rows[ROWS] = {[HOLDS] = {.name = "holds"}, [MAPPED] = {.name = "maps"}};

static volatile unsigned long hits;
extern void *__libc_calloc(size_t, size_t);
static void *own_malloc(size_t n) {
    hits++;
    return __libc_calloc(1, n);
}
static void own_free(void *p) {
    (void)p;
    hits++;
}
static void *own_mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    hits++;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
}
static int own_munmap(void *p, size_t n) {
    hits++;
    return (int)syscall(SYS_munmap, p, n);
}

static void must(int holds, const char *what) {
    if (holds) return;
    say("{\"error\":\"%s: %s\"}", what, strerror(errno));
    send_line();
    _exit(4);
}

static void (*trapped)(void);
static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)trapped;
}

static void far_jump(unsigned char *code, void *to) {
    static const unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
    memcpy(code, jump, sizeof jump);
    memcpy(code + 2, &to, sizeof to);
}

static void near_jump(unsigned char *code, void *to) {
    unsigned char *stone = MAP_FAILED;
    uintptr_t at = (uintptr_t)code & -(PAGE * 16);
    for (; stone == MAP_FAILED; at -= PAGE * 16) {
        stone = mmap((void *)at, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    }
    far_jump(stone, to);
    int32_t distance = (int32_t)(stone - (code + 5));
    code[0] = 0xe9;
    memcpy(code + 1, &distance, sizeof distance);
}

static void patch(unsigned char *at, void *to, const char *way) {
    void *page = (void *)(((uintptr_t)at - 5) & -PAGE);
    must(mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0, "mprotect");
    if (!strcmp(way, "far")) {
        far_jump(at, to);
    } else if (!strcmp(way, "near")) {
        near_jump(at, to);
    } else if (!strcmp(way, "short")) {
        near_jump(at - 5, to);
        memcpy(at, "\xeb\xf9", 2);
    } else {
        struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
        trapped = (void (*)(void))to;
        must(sigaction(SIGTRAP, &action, NULL) == 0, "sigaction");
        *at = 0xcc;
    }
    must(mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC) == 0, "mprotect");
}

static const struct {
    const char *name;
    void *hook;
} functions[] = {
    {"malloc", own_malloc}, {"free", own_free}, {"mmap", own_mmap}, {"munmap", own_munmap}};

DISTINCT static void round_of_calls(void) {
    void *p = malloc(1000);
    keep(p);
    free(p);
    char *m = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(m != MAP_FAILED, "mmap");
    *m = 1;
    munmap(m, MAP_BYTES);
}

static void calls(int is_patched, const char *when) {
    for (int i = 0; i < ROUNDS; i++) {
        unsigned long before = hits;
        round_of_calls();
        if (is_patched) must(hits == before + 1, when);
    }
}

DISTINCT static void holds(void) {
    for (int i = 0; i < BLOCKS; i++) {
        keep(calloc(1, BLOCK_BYTES));
        add(&rows[HOLDS].alloc, BLOCK_BYTES);
        add(&rows[HOLDS].live, BLOCK_BYTES);
    }
}

DISTINCT static void maps(void) {
    for (int i = 0; i < MAPS; i++) {
        keep(mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        add(&rows[MAPPED].alloc, MAP_BYTES);
        add(&rows[MAPPED].live, MAP_BYTES);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    sampling_interval(2);
    void *library = dlopen("libc.so.6", RTLD_NOW);
    void *hook = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!strcmp(argv[1], functions[i].name)) hook = functions[i].hook;
    }
    unsigned char *at = hook ? dlsym(library, argv[1]) : NULL;
    int is_late = !strcmp(argv[3], "after");
    if (is_late) {
        await_go();
        holds();
        calls(0, "");
    }
    if (hook) patch(at, hook, argv[2]);
    calls(hook != NULL, "a call did not come to the hook that had just been made");
    await_go();
    if (!is_late) holds();
    maps();
    calls(hook != NULL, "a call did not come to the hook");
    say_truth(rows, ROWS);
    await_line();
    calls(hook != NULL, "a call did not come to the hook afterwards");
    return 0;
}
