/* A tree of processes, each of which says what it allocated: `PID OBJECTS BYTES`, more than once where it
 * replaces its image.
 *
 * tree wait    stands at its mark with one child already there, then makes the tree, then waits for a line
 * tree now     makes the tree at once and ends
 * tree leaf N  allocates N blocks and ends
 * tree spare KEPT SPARED  stands at its mark, then starts these two programs, which are this one, in four ways:
 *              each as a leaf; SPARED that starts KEPT; SPARED that becomes KEPT when it is sent a line
 * tree orphan  stands at its mark, then has a child that allocates only when its first thread is gone, then waits
 *
 * The tree: a child with a child of its own; one that calls execve before, and one that does so after it has
 * allocated; one by posix_spawn; and one that leaves its parent behind.
 */
#include "protocol.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static const char *self;
static struct sums taken;

DISTINCT void take(size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        void *p = i % 3 == 2 ? calloc(1, size) : malloc(size);
        if (!p) _exit(3);
        keep(p);
        add(&taken, size);
        if (i % 2) free(p);
    }
}

/* One write, so that lines of several processes do not mix. */
static void report(void) {
    say("%d %llu %llu", (int)getpid(), (unsigned long long)taken.objects,
        (unsigned long long)taken.bytes);
    send_line();
}

/* A child begins with nothing: what its parent took is its parent's. */
static pid_t begin(void) {
    pid_t child = fork();
    if (child < 0) _exit(4);
    if (child == 0) memset(&taken, 0, sizeof taken);
    return child;
}

static void end(void) {
    report();
    _exit(0);
}

static void reap(pid_t child) {
    if (waitpid(child, NULL, 0) != child) _exit(5);
}

static void become_leaf(const char *count) {
    execl(self, "tree", "leaf", count, (char *)NULL);
    _exit(6);
}

static void make_tree(void) {
    int all[2];
    if (pipe(all)) _exit(7);
    take(10, 100);
    pid_t child = begin();
    if (child == 0) {
        take(11, 200);
        pid_t grandchild = begin();
        if (grandchild == 0) {
            take(12, 300);
            end();
        }
        reap(grandchild);
        end();
    }
    reap(child);
    if ((child = begin()) == 0) become_leaf("13");
    reap(child);
    if ((child = begin()) == 0) {
        take(14, 400);
        report();
        become_leaf("15");
    }
    reap(child);
    char *arguments[] = {"tree", "leaf", "16", NULL};
    if (posix_spawn(&child, self, NULL, NULL, arguments, environ)) _exit(8);
    reap(child);
    if ((child = begin()) == 0) {
        setsid();
        pid_t parent = getpid(), daemon = begin();
        if (daemon == 0) {
            while (getppid() == parent) usleep(1000);
            take(17, 500);
            end();
        }
        _exit(0);
    }
    reap(child);
    /* Everybody else has closed it: gone. */
    close(all[1]);
    char c;
    while (read(all[0], &c, 1) > 0) {}
}

/* pthread_create allocates: a bare thread, on a stack of its own and with the first one's thread-local variables. */
static char orphan_stack[1 << 18] __attribute__((aligned(16)));

static int orphan(void *unused) {
    (void)unused;
    char path[64], stat[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    do {
        usleep(1000);
        int file = open(path, O_RDONLY);
        ssize_t length = read(file, stat, sizeof stat - 1);
        close(file);
        stat[length > 0 ? length : 0] = 0;
    } while (!strstr(stat, ") Z "));
    take(20, 900);
    report();
    syscall(SYS_exit_group, 0);
    return 0;
}

static void make_orphan(void) {
    pid_t child = begin();
    if (child == 0) {
        int shared = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        if (clone(orphan, orphan_stack + sizeof orphan_stack, shared, NULL) < 0) _exit(9);
        syscall(SYS_exit, 0);
    }
    reap(child);
}

static void become(const char *program, const char *mode, const char *argument) {
    execl(program, program, mode, argument, (char *)NULL);
    _exit(6);
}

static void start(const char *program, const char *mode, const char *argument) {
    pid_t child = begin();
    if (child == 0) become(program, mode, argument);
    reap(child);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    self = argv[0];
    /* Nothing is estimated here: allocations are counted. */
    sampling_interval(2);
    if (strcmp(argv[1], "leaf") == 0) {
        self = NULL;
        take(strtoul(argv[2], NULL, 10), 600);
        end();
    }
    self = "/proc/self/exe";
    if (strcmp(argv[1], "now") == 0) {
        make_tree();
        report();
        return 0;
    }
    if (strcmp(argv[1], "spare") == 0) {
        await_go();
        take(20, 100);
        start(argv[3], "leaf", "21");
        start(argv[2], "leaf", "22");
        start(argv[3], "nest", argv[2]);
        start(argv[3], "change", argv[2]);
        report();
        say("end");
        send_line();
        await_line();
        return 0;
    }
    if (strcmp(argv[1], "nest") == 0) {
        take(23, 600);
        start(argv[2], "leaf", "24");
        end();
    }
    if (strcmp(argv[1], "change") == 0) {
        take(25, 600);
        report();
        await_line();
        become(argv[2], "leaf", "26");
    }
    if (strcmp(argv[1], "orphan") == 0) {
        await_go();
        make_orphan();
        say("end");
        send_line();
        await_line();
        return 0;
    }
    int go[2];
    if (pipe(go)) return 7;
    pid_t early = begin();
    if (early == 0) {
        char c;
        close(go[1]);
        if (read(go[0], &c, 1) != 1) _exit(0);
        take(18, 700);
        pid_t child = begin();
        if (child == 0) {
            take(19, 800);
            end();
        }
        reap(child);
        end();
    }
    close(go[0]);
    await_go();
    if (write(go[1], "!", 1) != 1) return 8;
    reap(early);
    make_tree();
    report();
    say("end");
    send_line();
    await_line();
    return 0;
}
