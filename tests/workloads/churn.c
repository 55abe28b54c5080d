/* Short processes: each line lets the next phase start so many of them, so many a second (or as many as there can be), each
 * of which allocates the same, and ends. After each phase a line says how many there were by then, and how long it took:
 *     churn RATE COUNT ...
 * It allocates nothing itself.
 */
#include "protocol.h"
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

/* Children that have not ended, at most. */
#define MOST 64

extern char **environ;

DISTINCT void *block(size_t size) { void *p = malloc(size); keep(p); return p; }

static int child(void) {
    for (int i = 0; i < 10; i++) free(block(100));
    free(block(5000));
    /* Held to the end. */
    block(70000);
    return 0;
}

static int ended(int options) {
    int status;
    pid_t pid = waitpid(-1, &status, options);
    if (pid > 0 && status != 0) _exit(4);
    return pid > 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc == 2) return child();
    double rate = atof(argv[1]);
    char *arguments[] = {argv[0], "child", NULL};
    int running = 0, all = 0;
    say("waiting");
    send_line();
    for (int phase = 2; phase < argc; phase++) {
        await_line();
        double start = now();
        for (int i = 0, count = atoi(argv[phase]); i < count; i++) {
            double early = start + i / rate - now();
            if (early > 0) usleep((useconds_t)(early * 1e6));
            while (running > 0 && ended(WNOHANG)) running--;
            while (running >= MOST && ended(0)) running--;
            pid_t pid;
            if (posix_spawn(&pid, argv[0], NULL, NULL, arguments, environ) != 0) _exit(5);
            running++;
            all++;
        }
        while (running > 0 && ended(0)) running--;
        say("{\"processes\":%d,\"seconds\":%.6f}", all, now() - start);
        send_line();
    }
    await_line();
    return 0;
}
