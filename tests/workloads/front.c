/* A program with an allocator of its own, of which it exports what the process calls: malloc, calloc, realloc, free. It knows its own blocks and
 * aborts on any other. What it has no function for comes from whoever has one, and must come back to these.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG 0x6b636f6c62726f66ul
#define BYTES (64ul << 20)

struct head {
    size_t size, tag;
};

static _Alignas(16) char memory[BYTES];
static size_t used, reallocs, frees;

static struct head *head(void *block) {
    struct head *head = (struct head *)block - 1;
    if ((char *)head < memory || (char *)head >= memory + used || head->tag != TAG) abort();
    return head;
}

__attribute__((visibility("default"))) void *malloc(size_t size) {
    size_t whole = (sizeof(struct head) + size + 15) & ~15ul;
    /* No test for an overflow: a request for nearly everything must not come here. */
    if (whole < size) abort();
    if (whole > BYTES - used) {
        errno = ENOMEM;
        return NULL;
    }
    struct head *head = (struct head *)(memory + used);
    used += whole;
    *head = (struct head){size, TAG};
    return head + 1;
}

__attribute__((visibility("default"))) void free(void *block) {
    frees++;
    if (block) head(block)->tag = 0;
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size) {
    void *block = malloc(count * size);
    return block ? memset(block, 0, count * size) : NULL;
}

__attribute__((visibility("default"))) void *realloc(void *block, size_t size) {
    reallocs++;
    void *moved = malloc(size);
    if (!block || !moved) return moved;
    size_t before = head(block)->size;
    memcpy(moved, block, before < size ? before : size);
    free(block);
    return moved;
}

int main(void) {
    char *block = NULL;
    for (size_t count = 1; count <= 1000; count++) {
        block = reallocarray(block, count, 7);
        if (!block) return 1;
        memset(block + (count - 1) * 7, (int)(count & 0x7f), 7);
    }
    for (size_t at = 0; at < 7000; at++)
        if (block[at] != (char)((at / 7 + 1) & 0x7f)) return 1;
    size_t volatile half = SIZE_MAX / 2;
    errno = 0;
    if (reallocarray(block, half, 3) || errno != ENOMEM) return 1;
    /* C23; not every libc has them. */
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    size_t before = frees;
    sized ? sized(block, 7000) : free(block);
    block = malloc(64);
    aligned ? aligned(block, 16, 64) : free(block);
    fprintf(stderr, "%zu reallocs, %zu frees\n", reallocs, frees - before);
    return reallocs == 1000 && frees - before == 2 ? 0 : 1;
}
