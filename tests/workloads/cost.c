/* Calls allocators a known number of times, and says how much CPU time that took.
 *
 * After `waiting` it obeys lines `CASE COUNT`, each answered by the nanoseconds of this process's CPU time, and ends with its input:
 *   pairs    COUNT times malloc and free
 *   mix      COUNT times calloc, realloc, posix_memalign and two frees
 *   large    COUNT times malloc and free of 300,000 bytes
 *   own      COUNT times own_alloc and own_free, in which no instruction is one that the kernel emulates
 */
#include "protocol.h"
#include <malloc.h>
#include <time.h>

void *own_alloc(size_t size);
void own_free(void *block);
__asm__(".text\n"
        ".globl own_alloc\n.type own_alloc, @function\n"
        "own_alloc:\n lea arena(%rip), %rax\n ret\n.size own_alloc, .-own_alloc\n"
        ".globl own_free\n.type own_free, @function\n"
        "own_free:\n xor %eax, %eax\n ret\n.size own_free, .-own_free\n"
        ".local arena\n.comm arena, 4096, 16\n");

static uint64_t processor_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pairs(long count) {
    for (long i = 0; i < count; i++) {
        void *p = malloc(64);
        keep(p);
        free(p);
    }
}

static void mix(long count) {
    for (long i = 0; i < count; i++) {
        void *p = calloc(4, 16), *q = NULL;
        keep(p);
        p = realloc(p, 96);
        if (posix_memalign(&q, 64, 100) != 0) _exit(4);
        keep(q);
        free(q);
        free(p);
    }
}

static void large(long count) {
    for (long i = 0; i < count; i++) {
        void *p = malloc(300000);
        keep(p);
        free(p);
    }
}

static void own(long count) {
    for (long i = 0; i < count; i++) {
        void *p = own_alloc(64);
        keep(p);
        own_free(p);
    }
}

static int next(char *text, size_t size) {
    size_t n = 0;
    while (n + 1 < size) {
        ssize_t got = read(0, text + n, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        if (text[n] == '\n') break;
        n++;
    }
    text[n] = 0;
    return 1;
}

int main(void) {
    static const struct {
        const char *name;
        void (*run)(long);
    } cases[] = {{"pairs", pairs}, {"mix", mix}, {"large", large}, {"own", own}};
    /* Large blocks come from the heap, and stay in it: what is measured are calls, not mappings. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    free(malloc(1 << 20));
    say("waiting");
    send_line();
    char text[64];
    while (next(text, sizeof text)) {
        char *count = strchr(text, ' ');
        if (!count) return 2;
        *count++ = 0;
        uint64_t begin = processor_ns();
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (!strcmp(text, cases[i].name)) cases[i].run(atol(count));
        say("%llu", (unsigned long long)(processor_ns() - begin));
        send_line();
    }
    return 0;
}
