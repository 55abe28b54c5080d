/* A library of which there are several that differ in nothing but a name (-DNAME=…): one may lie where another one lay. */
#include <stdlib.h>

__attribute__((noipa)) static void *NAME(size_t size) {
    void *p = malloc(size);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

__attribute__((noipa, visibility("default"))) void *run(size_t size) { return NAME(size); }
