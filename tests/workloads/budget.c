/* Allocates at two sites in a given manner, for ever. SIGUSR1: prints what each site has allocated, and CPU time:
 * {"steady": [objects, bytes], "rare": [objects, bytes], "cpu_ns": n}. SIGUSR2: replaces itself. SIGTERM: ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked, over, replaced;
static void ask(int signal) { (void)signal; asked = 1; }
static void end(int signal) { (void)signal; over = 1; }
static void replace(int signal) { (void)signal; replaced = 1; }

static unsigned long objects[2], bytes[2];
static unsigned long work = 1;

__attribute__((noinline)) static void *counted(int site, size_t size) {
    objects[site] += 1;
    bytes[site] += size;
    return malloc(size);
}

__attribute__((noinline)) void steady_site(void) {
    void *block = counted(0, 64);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}

__attribute__((noinline)) void rare_site(void) {
    void *block = counted(1, 1024);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}

/* All work that was done: what comes next depends on that alone, and not on the time that a profiler takes. */
static unsigned long done;

static void spin(long steps) {
    for (long step = 0; step < steps; step++) work = work * 6364136223846793005ul + 1442695040888963407ul;
}

static void compute(long steps) {
    done += (unsigned long)steps;
    spin(steps);
}

static double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int count, char **arguments) {
    const char *manner = count > 1 ? arguments[1] : "steady";
    long steps = count > 2 ? atol(arguments[2]) : 60;
    int rare = count > 3 ? atoi(arguments[3]) : 50;
    signal(SIGUSR1, ask);
    signal(SIGUSR2, replace);
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    for (unsigned long turn = 0; !over; turn++) {
        for (int i = 0; i < 1000; i++) {
            steady_site();
            compute(steps);
            if (i % rare == 0) rare_site();
        }
        unsigned long now = done / 750000; /* milliseconds, about */
        /* A third of the time nothing is allocated. */
        if (!strcmp(manner, "phases") && now / 700 % 3 == 2) compute(2000000);
        /* Bursts of a tenth of the time, and hardly anything between. */
        if (!strcmp(manner, "bursts") && now / 20 % 10 != 0) compute(3000000);
        if (!strcmp(manner, "idle") && turn % 200 == 0) usleep(50000);
        if (replaced) execv("/proc/self/exe", arguments);
        if (asked) {
            asked = 0;
            printf("{\"steady_site\": [%lu, %lu], \"rare_site\": [%lu, %lu], \"cpu_ns\": %.0f}\n", objects[0], bytes[0],
                   objects[1], bytes[1], cpu());
            fflush(stdout);
        }
    }
    return work == 42;
}
