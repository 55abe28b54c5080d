/* Every function of the family, with what is odd about it. */

#include <malloc.h>

static volatile size_t too_much = (size_t)1 << 62;

static void aligned(size_t alignment, size_t size) {
    void *blocks[4] = {0};
    CHECK(posix_memalign(&blocks[0], alignment, size) == 0);
    blocks[1] = aligned_alloc(alignment, size);
    blocks[2] = memalign(alignment, size);
    blocks[3] = size > 4096 ? valloc(size) : NULL;
    for (int i = 0; i < 4; i++) {
        if (!blocks[i]) {
            CHECK(i == 3);
            continue;
        }
        CHECK((uintptr_t)blocks[i] % alignment == 0 && malloc_usable_size(blocks[i]) >= size);
        memset(blocks[i], 5, size);
        free(blocks[i]);
    }
}

static void moved(void) {
    unsigned state = 3;
    size_t size = 1;
    unsigned char *p = NULL;
    for (int i = 0; i < 3000; i++) {
        size_t wanted = 1 + next(&state) % (i % 100 ? 3000 : 2000000);
        unsigned char *q = i % 2 ? realloc(p, wanted) : reallocarray(p, wanted, 1);
        CHECK(q);
        if (p)
            for (size_t k = 0; k < size && k < wanted; k++) CHECK(q[k] == (unsigned char)(k * 13 + 1));
        for (size_t k = 0; k < wanted; k++) q[k] = (unsigned char)(k * 13 + 1);
        p = q;
        size = wanted;
    }
    CHECK(!realloc(p, too_much) && errno == ENOMEM);
    CHECK(!reallocarray(p, too_much, 8) && errno == ENOMEM);
    for (size_t k = 0; k < size; k++) CHECK(p[k] == (unsigned char)(k * 13 + 1));
    free(p);
}

static void case_calls(void) {
    for (size_t alignment = 8; alignment <= 4096; alignment *= 2)
        for (size_t size = alignment; size <= 100000; size *= 3) aligned(alignment, size / alignment * alignment);
    moved();
    for (size_t i = 0; i < 1000; i++) {
        unsigned char *p = calloc(i, 17);
        CHECK(p);
        for (size_t k = 0; k < i * 17; k++) CHECK(p[k] == 0);
        memset(p, 255, i * 17);
        free(p);
    }
    free(NULL);
    free(malloc(0));
    /* jemalloc has none, and glibc's is not for its free. */
    if (!dlsym(RTLD_DEFAULT, "mallctl")) {
        void *p = pvalloc(1);
        CHECK(malloc_usable_size(p) >= 4096);
        free(p);
    }
    void *place = &place;
    CHECK(posix_memalign(&place, 3, 8) == EINVAL && place == &place);
    printf("calls\n");
}

/* What fails sets errno, and what does not leaves it. */
static void case_errno(void) {
    errno = 0;
    CHECK(!malloc(too_much) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(too_much, 8) && errno == ENOMEM);
    errno = 0;
    CHECK(!aligned_alloc(16, too_much) && errno == ENOMEM);
    for (size_t i = 0; i < 100000; i++) {
        errno = 77;
        void *p = malloc(i % 1000);
        p = realloc(p, i % 2000 + 1);
        free(p);
        CHECK(errno == 77);
    }
    printf("errno\n");
}
