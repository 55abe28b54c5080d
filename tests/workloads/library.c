/* A library that is loaded while its process is profiled. */
#include <stdlib.h>

__attribute__((noipa, visibility("default"))) void *library_alloc(size_t size) {
    void *p = malloc(size);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}
