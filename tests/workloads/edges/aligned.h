/* The allocators that align. */
#include <malloc.h>

DISTINCT void memalign_invalid(void) {
    void *p = (void *)1;
    CHECK(posix_memalign(&p, 3, 100) == EINVAL);
    CHECK(p == (void *)1);
    row(__func__);
}

DISTINCT void memalign_no_memory(void) {
    void *p = NULL;
    CHECK(posix_memalign(&p, 64, huge) == ENOMEM);
    CHECK(posix_memalign(&p, 8, huge) == ENOMEM);
    CHECK(aligned_alloc(64, huge) == NULL);
    CHECK(valloc(huge) == NULL);
    row(__func__);
}

DISTINCT void memalign_small_alignment(void) {
    void *p = NULL;
    CHECK(posix_memalign(&p, 8, 24) == 0);
    TOOK(24);
    CHECK(posix_memalign(&p, 16, 40) == 0);
    TOOK(40);
    keep(aligned_alloc(16, 48));
    TOOK(48);
    keep(memalign(8, 56));
    TOOK(56);
}

DISTINCT void memalign_large_alignment(void) {
    void *p = NULL;
    CHECK(posix_memalign(&p, 64, 1000) == 0);
    TOOK(1000);
    CHECK(posix_memalign(&p, 4096, 10000) == 0);
    TOOK(10000);
    free(p);
    GAVE(10000);
    keep(aligned_alloc(128, 256));
    TOOK(256);
    p = memalign(1 << 16, 300);
    TOOK(300);
    free(p);
    GAVE(300);
}

DISTINCT void page_aligned(void) {
    keep(valloc(123));
    TOOK(123);
    void *p = pvalloc(100);
    TOOK(100);
    free(p);
    GAVE(100);
}

static void case_aligned(void) {
    memalign_invalid();
    memalign_no_memory();
    memalign_small_alignment();
    memalign_large_alignment();
    page_aligned();
}
