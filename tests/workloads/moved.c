/* A static program, its malloc in its own code, that moves that code to anonymous memory, as some do for huge pages.
 *
 * moved.c copy|swap|never early|late|now: by a copy, new memory and a copy back, or by a copy that takes the code's place; before the mark, after it, or
 * without marks. Built with -DSTAYS it has nothing that could move code.
 */
#include "protocol.h"
#include <sys/mman.h>
#include <sys/syscall.h>

#define BLOCKS 200
#define BLOCK 10000

static struct row rows[] = {{.name = "kept_blocks"}};

#ifndef STAYS
static inline __attribute__((always_inline)) long
call(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* Runs as a copy of itself, where it can call nothing. */
__attribute__((noipa, section(".text.copied"))) static void
copy_back(char *code, size_t bytes, const char *scratch) {
    call(SYS_mmap, (long)code, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
    for (size_t i = 0; i < bytes; i++) ((volatile char *)code)[i] = scratch[i];
    call(SYS_mprotect, (long)code, (long)bytes, PROT_READ | PROT_EXEC, 0);
}

static void move(const char *how) {
    const unsigned long page = 4096;
    char *code = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to, within = (unsigned long)move;
    char line_of_maps[512];
    size_t bytes = 0;
    while (fgets(line_of_maps, sizeof line_of_maps, maps))
        if (sscanf(line_of_maps, "%lx-%lx", &from, &to) == 2 && from <= within && within < to)
            code = (char *)from, bytes = to - from;
    fclose(maps);
    char *scratch = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(scratch, code, bytes);
    if (!strcmp(how, "swap")) {
        mprotect(scratch, bytes, PROT_READ | PROT_EXEC);
        /* Returns into the copy. */
        mremap(scratch, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, code);
        return;
    }
    void *copied = mmap(NULL, page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copied, (void *)copy_back, 512);
    ((void (*)(char *, size_t, const char *))copied)(code, bytes, scratch);
}
#else
static void move(const char *how) { (void)how; }
#endif

DISTINCT static void kept_blocks(void) {
    for (int i = 0; i < BLOCKS; i++) {
        keep(malloc(BLOCK));
        add(&rows[0].alloc, BLOCK), add(&rows[0].live, BLOCK);
    }
}

int main(int count, char **arguments) {
    const char *how = count > 2 ? arguments[1] : "never", *when = count > 2 ? arguments[2] : "late";
    int moves = strcmp(how, "never");
    sampling_interval(1);
    if (moves && !strcmp(when, "early")) move(how);
    if (strcmp(when, "now")) await_go();
    if (moves && strcmp(when, "early")) move(how);
    kept_blocks();
    say_truth(rows, 1);
    if (strcmp(when, "now")) await_line();
    return 0;
}
