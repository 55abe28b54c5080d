/* Syscall User Dispatch: system calls that do not come from libc's own code become SIGSYS in a thread that has it on, as emulators of other systems
 * have it. Any SIGSYS would be one that the program has not made: it ends with 4.
 *
 * dispatched.c before|after|thread|child: on before the mark, after it, in a second thread only, or in a forked child only.
 */
#include "protocol.h"
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SET_SYSCALL_USER_DISPATCH 59

static volatile char blocks = 1;
static volatile int goes;
static unsigned long begin, bytes;
static struct row rows[] = {{.name = "dispatched_blocks"}, {.name = "usual_blocks"}};

static void dispatched(int number) {
    (void)number;
    _exit(4);
}

static int find_libc(struct dl_phdr_info *of, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(of->dlpi_name, "libc.so")) return 0;
    for (int i = 0; i < of->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = of->dlpi_phdr + i;
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        begin = of->dlpi_addr + segment->p_vaddr;
        bytes = segment->p_memsz;
    }
    return 1;
}

static void turn_on(void) {
    if (prctl(SET_SYSCALL_USER_DISPATCH, 1, begin, bytes, &blocks)) _exit(3);
}

/* Keeps what it counts as live in `row`. */
static inline void allocate(struct row *row) {
    for (int i = 0; i < 500; i++) {
        void *kept = malloc(4000), *freed = calloc(10, 100);
        kept = realloc(kept, 8000);
        keep(kept), keep(freed), free(freed);
        add(&row->alloc, 4000), add(&row->alloc, 8000), add(&row->alloc, 1000);
        add(&row->live, 8000);
    }
    /* No machine has so much. */
    if (malloc(1ul << 46)) _exit(5);
}

DISTINCT static void dispatched_blocks(void) { allocate(&rows[0]); }
DISTINCT static void usual_blocks(void) { allocate(&rows[1]); }

static void *second(void *unused) {
    (void)unused;
    while (!goes) usleep(1000);
    turn_on();
    dispatched_blocks();
    return NULL;
}

int main(int count, char **arguments) {
    const char *when = count > 1 ? arguments[1] : "before";
    int threads = !strcmp(when, "thread"), forks = !strcmp(when, "child");
    sampling_interval(1);
    dl_iterate_phdr(find_libc, NULL);
    signal(SIGSYS, dispatched);
    pthread_t thread;
    if (threads && pthread_create(&thread, NULL, second, NULL)) return 3;
    if (!strcmp(when, "before")) turn_on();
    await_go();
    if (threads) {
        goes = 1;
        usual_blocks();
        pthread_join(thread, NULL);
    } else if (forks) {
        pid_t child = fork();
        if (!child) {
            turn_on();
            dispatched_blocks();
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) return 6;
        usual_blocks();
    } else {
        if (!strcmp(when, "after")) turn_on();
        dispatched_blocks();
    }
    say_truth(rows, 2);
    await_line();
    return 0;
}
