/* A library with two versions of one symbol. */
#include <stdlib.h>

__asm__(".symver first_version, versioned@V1");
__asm__(".symver second_version, versioned@@V2");

void first_version(void) {}
void second_version(void) {
    void *block = malloc(1000);
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}
