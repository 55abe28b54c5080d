/* Allocates without end under functions of each kind: inlined (only debug information has its name),
 * static (only .symtab has its name) and exported (with -rdynamic, .dynsym has its name). */
#include "../protocol.h"

__attribute__((always_inline)) static inline void *is_inlined(size_t size) {
    void *block = malloc(size);
    keep(block);
    return block;
}

static DISTINCT void is_static(void) { free(is_inlined(1000)); keep(NULL); }
DISTINCT void is_exported(void) { is_static(); keep(NULL); }

int main(void) {
    await_go();
    for (;;) {
        for (int i = 0; i < 200; i++) is_exported();
        usleep(1000);
    }
}
