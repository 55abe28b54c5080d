/* crew fork|exec CHILDREN ROUNDS STEPS: runs CHILDREN short processes, two at a time, once its input says so. Each allocates 1000 blocks
 * in a round, some processes more rounds than others. Prints what all of them have allocated, as {"objects": n, "bytes": n}, and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long work = 1;

__attribute__((noinline)) void crew_site(size_t size) {
    void *block = malloc(size);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}

static void compute(long steps) {
    for (long step = 0; step < steps; step++) work = work * 6364136223846793005ul + 1442695040888963407ul;
    __asm__ volatile("" : : "r"(work) : "memory");
}

/* Rounds of a child: between a half and one and a half of the usual number. */
static long rounds_of(long child, long rounds) { return rounds / 2 + rounds * (child % 5) / 4; }

static size_t size_of(long child) { return child % 2 ? 256 : 64; }

static void child(long number, long rounds, long steps) {
    for (long round = 0; round < rounds_of(number, rounds); round++) {
        for (int i = 0; i < 1000; i++) {
            crew_site(size_of(number));
            compute(steps);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    long children = atol(arguments[2]), rounds = atol(arguments[3]), steps = atol(arguments[4]);
    if (!strcmp(arguments[1], "child")) {
        child(children, rounds, steps);
        return 0;
    }
    puts("ready");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) return 1;
    unsigned long objects = 0, bytes = 0;
    for (long number = 0; number < children; number++) {
        if (number >= 2) wait(NULL);
        pid_t pid = fork();
        if (pid < 0) return 1;
        if (pid == 0) {
            if (!strcmp(arguments[1], "exec")) {
                char text[32];
                snprintf(text, sizeof text, "%ld", number);
                execl(arguments[0], "crew", "child", text, arguments[3], arguments[4], (char *)NULL);
                _exit(127);
            }
            child(number, rounds, steps);
            _exit(0);
        }
        objects += 1000ul * rounds_of(number, rounds);
        bytes += 1000ul * rounds_of(number, rounds) * size_of(number);
    }
    while (wait(NULL) > 0) {}
    printf("{\"objects\": %lu, \"bytes\": %lu}\n", objects, bytes);
    fflush(stdout);
    fgets(line, sizeof line, stdin);
    return work == 42;
}
