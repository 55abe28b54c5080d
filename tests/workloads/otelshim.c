/* A shim in front of glibc's malloc, to be preloaded: it samples every allocation with certainty and says so. The blocks
 * themselves are glibc's, so that probes of glibc's malloc would count them a second time.
 */
#include "otel/otel_memory.h"

#define API __attribute__((noipa, visibility("default")))

void *__libc_malloc(size_t size);
void __libc_free(void *p);

API void *malloc(size_t size) {
    void *p = __libc_malloc(size);
    if (p && size && otel_memory_alloc_semaphore) FIRE_ALLOC(p, size, size);
    return p;
}

API void free(void *p) {
    if (p && otel_memory_free_semaphore) FIRE_FREE(p);
    __libc_free(p);
}
